# SPDX-License-Identifier: BSD-3-Clause
"""What a reference names: files of this host, layers in a registry, or a SIF elsewhere. Decided here and nowhere else.

A `docker://` name may stand for layers or for a SIF: only its manifest tells. `Source.look_up` asks for the manifest
and keeps it, so that the registry is asked once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen, replace
from kedge.base.reference import Reference, Transport
from kedge.errors import UsageError
from kedge.image.formats.identify import ARCHIVES, FileKind, identify_file
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.image.sources.resolve import Resolved


class SourceKind(Enum):
    """Kinds of images, by what has to be done to read them."""

    SIF_FILE = "a SIF file on this host"
    SQUASHFS_FILE = "a bare SquashFS file on this host"
    DIRECTORY = "a root file system in a directory of this host"
    ARCHIVE = "an OCI layout, an OCI archive or a docker-save archive on this host"
    OTHER_PATH = "a path on this host that holds no image, or does not exist"
    ENGINE = "an image of the Docker or Podman on this host"
    PROGRAMS = "programs of this host"
    REGISTRY = "an image in a registry whose manifest was not read yet"
    LAYERS = "layers in a registry"
    REMOTE_SIF = "a SIF file in a registry, in a library or at an address"


_BY_TRANSPORT = {
    Transport.OCI: SourceKind.ARCHIVE,
    Transport.OCI_ARCHIVE: SourceKind.ARCHIVE,
    Transport.DOCKER_ARCHIVE: SourceKind.ARCHIVE,
    Transport.DOCKER_DAEMON: SourceKind.ENGINE,
    Transport.HOST: SourceKind.PROGRAMS,
    Transport.DOCKER: SourceKind.REGISTRY,
    Transport.ORAS: SourceKind.REMOTE_SIF,
    Transport.LIBRARY: SourceKind.REMOTE_SIF,
    Transport.HTTP: SourceKind.REMOTE_SIF,
    Transport.HTTPS: SourceKind.REMOTE_SIF,
}


@frozen
class Source:
    """A reference, what it names, and the manifest where it was asked for."""

    reference: Reference
    kind: SourceKind
    resolved: Resolved | None = None

    @property
    def is_local(self) -> bool:
        """Whether the image is on this host."""
        return self.reference.is_local

    @property
    def path(self) -> Path | None:
        """The file or directory, where the reference is a plain path that is no archive."""
        is_path = self.reference.transport is Transport.FILE and self.kind is not SourceKind.ARCHIVE
        return Path(self.reference.path) if is_path else None

    @property
    def layers(self) -> Resolved | None:
        """The manifest of layers in a registry; None for all other kinds."""
        return self.resolved if self.kind is SourceKind.LAYERS else None

    def look_up(self, resolve: Callable[[], Resolved]) -> Source:
        """The source as its manifest tells it; `resolve` is called for an image in a registry only."""
        if self.kind is not SourceKind.REGISTRY:
            return self
        resolved = resolve()
        kind = SourceKind.REMOTE_SIF if resolved.manifest.is_sif else SourceKind.LAYERS
        return replace(self, kind=kind, resolved=resolved)


def classify(reference: Reference) -> Source:
    """What `reference` names, without any request; of a file the first bytes are read. Refuses running containers."""
    if reference.transport is Transport.INSTANCE:
        raise UsageError(f"{reference} is a running container, not an image", hint="name the image it was started from")
    if reference.transport is Transport.FILE:
        return Source(reference, classify_path(Path(reference.path)))
    return Source(reference, _BY_TRANSPORT[reference.transport])


def classify_path(path: Path) -> SourceKind:
    """What a path holds, by its content; its name does not count."""
    with explained(path):
        if path.is_dir():
            is_layout = (path / "oci-layout").is_file() and (path / "index.json").is_file()
            return SourceKind.ARCHIVE if is_layout else SourceKind.DIRECTORY
        if not path.is_file():
            return SourceKind.OTHER_PATH
        with path.open("rb") as file:
            kind = identify_file(file)
    if kind in ARCHIVES:
        return SourceKind.ARCHIVE
    kinds = {FileKind.SIF: SourceKind.SIF_FILE, FileKind.SQUASHFS: SourceKind.SQUASHFS_FILE}
    return kinds.get(kind, SourceKind.OTHER_PATH)
