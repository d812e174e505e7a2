# SPDX-License-Identifier: BSD-3-Clause
"""Images that stay in the cache and run from there: SIF and SquashFS files for other runtimes and for Pyxis.

One process makes such a file, those on all other nodes wait for it, and the next job finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.base.reference import Reference, Transport
from kedge.image.sources.classify import Source, classify
from kedge.image.sources.image_source import ImageSource
from kedge.image.sources.resolve import Resolved, resolve_by_policy
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.image.write_image import WriteOptions, choose_options

# Imports inside the functions below are late for start-up cost: a cached image needs none of them.

Write = Callable[[BinaryIO, ImageSource, WriteOptions], object]


@dataclass(frozen=True, slots=True)
class CachedFormat:
    """A format: its name, which is part of the key, and the function that writes it."""

    name: str
    write: Write
    names_source: bool = True  # the bytes hold the reference


@dataclass(frozen=True, slots=True)
class CachedFile:
    """The key of a file in the cache, and the function that makes it."""

    key: str
    build: Callable[[BinaryIO], None]


def find_cached_file(
    reference: Reference, workplace: Workplace, store: Store, file_format: CachedFormat, *, policy: str
) -> CachedFile:
    """Resolve the reference; only its manifest is downloaded. `policy` is that of --pull."""
    source = classify(reference)
    place = _Place(reference, workplace, store, file_format)
    if source.is_local:
        return place.from_local()
    source = source.look_up(lambda: resolve_by_policy(reference, workplace, store, policy))
    return place.from_layers(source.layers) if source.layers else place.from_sif(source, is_offline=policy == "never")


def provide_cached(
    reference: Reference, workplace: Workplace, store: Store, file_format: CachedFormat, *, policy: str
) -> Path:
    """The file in the cache; it is made if it is missing."""
    source = find_cached_file(reference, workplace, store, file_format, policy=policy)
    with store.use_image(source.key):
        path = store.find_image(source.key)
        if path is not None:
            return path
        with workplace.attempt(store, f"the preparation of {reference.redacted}"):
            return store.build_image(source.key, source.build, notify=workplace.progress.note)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an image comes from, and its format in the cache."""

    reference: Reference
    workplace: Workplace
    store: Store
    file_format: CachedFormat

    def key(self, identity: str) -> str:
        """Everything that the bytes depend on."""
        source = f" {self.reference}" if self.file_format.names_source else ""
        return f"{self.file_format.name}{source} {identity} {self.workplace.settings.compression} v2"

    def from_layers(self, resolved: Resolved) -> CachedFile:
        """Layers of a registry: they stream through the cache."""
        from kedge.image.pull import image_key

        digest = resolved.digest
        is_sif = self.file_format.name == "sif"  # which 'kedge pull' may have made already
        key = (
            image_key(self.reference, digest, self.workplace.settings.compression) if is_sif else self.key(str(digest))
        )

        def build(file: BinaryIO) -> None:
            from kedge.image.sources.fetch_layers import open_remote_image

            self._require_room(resolved)
            self._write(file, open_remote_image(resolved, self.workplace, self.store))

        return CachedFile(key, build)

    def from_sif(self, source: Source, *, is_offline: bool) -> CachedFile:
        """A remote file that is a SIF already."""
        from kedge.image.sources.fetch_sif import find_sif_source

        sif = find_sif_source(source, self.workplace, self.store, offline=is_offline)
        if self.file_format.name == "sif":
            return CachedFile(sif.key, sif.write)

        def build(file: BinaryIO) -> None:
            from kedge.image.sources.open_local import open_any_image

            with self.store.use_image(sif.key):
                path = self.store.build_image(sif.key, sif.write, notify=self.workplace.progress.note)
                self._write(file, open_any_image(Reference(Transport.FILE, path=str(path)), self.workplace))

        return CachedFile(self.key(sif.key), build)

    def from_local(self) -> CachedFile:
        """A file, an archive or an engine's image: identified by its digest, or by the state of the file."""
        from kedge.image.sources.image_source import LayeredImage
        from kedge.image.sources.open_local import open_any_image, open_local_image

        image = open_local_image(self.reference, self.workplace)
        try:
            identity = str(image.manifest.digest) if isinstance(image, LayeredImage) else self._describe_file()
        finally:
            image.close()
        return CachedFile(
            self.key(identity), lambda file: self._write(file, open_any_image(self.reference, self.workplace))
        )

    def _describe_file(self) -> str:
        path = Path(self.reference.path or "/")
        status = path.stat()
        return f"{path.resolve()} {status.st_size} {status.st_ctime_ns} {status.st_ino}"

    def _write(self, file: BinaryIO, image: ImageSource) -> None:
        try:
            self.file_format.write(file, image, choose_options(self.workplace))
        finally:
            image.close()

    def _require_room(self, resolved: Resolved) -> None:
        """Require room before the download: for missing layers, and for a file about as large as all of them."""
        from kedge.base.image_format import ImageFormat
        from kedge.image.pull import estimate_size
        from kedge.system.host.space import require_space

        missing = sum(x.size for x in resolved.manifest.layers if not self.store.has_blob(x.digest, x.size))
        needed = missing + estimate_size(resolved.compressed_size, ImageFormat.SQUASHFS)
        what = f"the preparation of {self.reference.redacted}"
        require_space(self.store.root, needed, what, choice=self.workplace.store_choice)
