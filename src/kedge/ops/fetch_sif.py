# SPDX-License-Identifier: BSD-3-Clause
"""Images that are SIF files already: `oras://`, `library://` and plain addresses. They are stored as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.errors import ImageNotFound, InvalidSetting
from kedge.formats.sif.identify import PROBE, FileKind, identify_bytes, refuse_as_sif
from kedge.model.digest import Digest
from kedge.model.manifest import SIF_LAYER, Descriptor
from kedge.model.reference import Reference, Transport
from kedge.ops.fetch import short_name
from kedge.ops.resolve import resolve
from kedge.ops.workplace import Workplace
from kedge.registry.download import download_url, open_url
from kedge.registry.library import KNOWN_LIBRARY, LibraryClient, LibraryImage, find_library
from kedge.registry.oras import find_sif
from kedge.store.download import IngestOptions, OpenAt
from kedge.store.store import Store


@dataclass(frozen=True, slots=True)
class SifSource:
    """A SIF somewhere else: what the store calls it, and how to write it into a file."""

    key: str
    digest: Digest | None
    size: int | None
    write: Callable[[BinaryIO], None]


def find_sif_source(reference: Reference, workplace: Workplace, store: Store, *, offline: bool = False) -> SifSource:
    """Ask where the file is, how large, and what its digest is."""
    if reference.transport in (Transport.ORAS, Transport.DOCKER):
        return _find_oras(reference, workplace, store, offline=offline)
    if offline:
        raise ImageNotFound(f"{reference} has to be asked for over the network, and --offline forbids that")
    if reference.transport is Transport.LIBRARY:
        return _find_library(reference, workplace, store)
    return _find_address(reference, workplace)


def _find_oras(reference: Reference, workplace: Workplace, store: Store, *, offline: bool) -> SifSource:
    resolved = resolve(reference, workplace, store, offline=offline)
    layer = find_sif(resolved.manifest, str(reference))
    repository = reference.repository
    return _ingested(layer, lambda offset: resolved.client.open_blob(repository, layer, offset), workplace, store)


def _find_library(reference: Reference, workplace: Workplace, store: Store) -> SifSource:
    access = workplace.open_access()
    client = _choose_library(reference, workplace, access.transport)
    name = reference.name if reference.tag or reference.digest else f"{reference.name}:latest"
    image = client.describe(name, workplace.platform.architecture)
    if image.digest is not None and image.size is not None:
        layer = Descriptor(SIF_LAYER, image.digest, image.size)
        return _ingested(layer, lambda offset: client.open_image(image, offset), workplace, store)
    return SifSource(f"sif from {client.base} {name}", None, image.size, lambda file: _copy_image(client, image, file))


def _choose_library(reference: Reference, workplace: Workplace, transport: object) -> LibraryClient:
    settings = workplace.settings
    if reference.registry:
        return LibraryClient(f"https://{reference.registry}", transport)  # type: ignore[arg-type]
    chosen = settings.library_url if settings.sources["library_url"].kind != "default" else None
    try:
        return find_library(transport, Path.home(), address=chosen)  # type: ignore[arg-type]
    except InvalidSetting:  # no remote is configured: the public library is what users of library:// mean
        return find_library(transport, Path.home(), address=settings.library_url or KNOWN_LIBRARY)  # type: ignore[arg-type]


def _copy_image(client: LibraryClient, image: LibraryImage, file: BinaryIO) -> None:
    with client.open_image(image) as stream:
        for piece in stream:
            file.write(piece)
    _check_kind(file, image.path)


def _ingested(layer: Descriptor, open_at: OpenAt, workplace: Workplace, store: Store) -> SifSource:
    def write(file: BinaryIO) -> None:
        task = workplace.progress.task(f"SIF {short_name(layer)}", layer.size)
        ingest = store.ingest(layer, open_at, IngestOptions(advance=task.advance, notify=workplace.progress.note))
        for piece in ingest.follow():
            file.write(piece)
        task.finish()
        ingest.close()
        _check_kind(file, str(layer.digest))
        store.blobs.drop(layer.digest)  # the stored image has the same bytes; one copy is enough

    return SifSource(f"sif file {layer.digest}", layer.digest, layer.size, write)


def _find_address(reference: Reference, workplace: Workplace) -> SifSource:
    access = workplace.open_access()
    with open_url(access.transport, reference.path) as stream:
        size, validator = stream.size, stream.validator

    def write(file: BinaryIO) -> None:
        task = workplace.progress.task(reference.default_name(), size)
        download_url(access.transport, reference.path, file, announce=lambda _: task.advance)
        task.finish()
        _check_kind(file, reference.path)

    # without a validator the server cannot say whether the file changed, so nothing stored may stand for it
    key = f"sif at {reference.path} {validator or id(write)} {size}"
    return SifSource(key, None, size, write)


def _check_kind(file: BinaryIO, where: str) -> None:
    file.flush()
    file.seek(0)
    start = file.read(PROBE)
    if identify_bytes(start) not in (FileKind.SIF, FileKind.SQUASHFS):
        raise refuse_as_sif(start, where)
