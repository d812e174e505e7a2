# SPDX-License-Identifier: BSD-3-Clause
"""Fetches images that are SIF files already: `oras://`, `library://` and plain addresses. They are kept unchanged."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.base.digest import Digest
from kedge.base.manifest import SIF_LAYER, Descriptor
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.errors import ImageNotFound, InvalidSetting
from kedge.image.formats.identify import PROBE, FileKind, identify_bytes, identify_file, refuse_as_sif
from kedge.image.formats.sif.reader import SifReader
from kedge.image.registry.blob_stream import BlobStream
from kedge.image.registry.download import download_url, open_url
from kedge.image.registry.library import KNOWN_LIBRARY, LibraryClient, find_library
from kedge.image.registry.oras import find_sif
from kedge.image.registry.transport import HttpTransport
from kedge.image.sources.classify import Source
from kedge.image.sources.fetch_layers import choose_ingest, short_name
from kedge.image.sources.resolve import Resolved, compare_platform, resolve
from kedge.image.store.download import OpenAt
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained
from kedge.system.settings import home_directory


@dataclass(frozen=True, slots=True)
class SifSource:
    """A remote SIF: its key in the cache, and how to write it into a file."""

    key: str
    digest: Digest | None
    size: int | None
    write: Callable[[BinaryIO], None]
    open_at: OpenAt  # the bytes from an offset on, not verified
    keep: bool = True  # False: nothing tells whether it changed, so a cached copy is not used again


def find_sif_source(source: Source, workplace: Workplace, store: Store, *, offline: bool = False) -> SifSource:
    """Ask where the file is, how large, and what its digest is; a manifest that `source` has is not asked for again."""
    reference = source.reference
    if reference.transport in (Transport.ORAS, Transport.DOCKER):
        resolved = source.resolved or resolve(reference, workplace, store, offline=offline)
        return _find_oras(resolved, workplace, store)
    if offline:
        raise ImageNotFound(f"{reference.redacted} needs the network, which --offline forbids")
    if reference.transport is Transport.LIBRARY:
        return _find_library(reference, workplace, store)
    return _find_address(reference, workplace, store)


def _find_oras(resolved: Resolved, workplace: Workplace, store: Store) -> SifSource:
    reference = resolved.reference
    layer, repository = find_sif(resolved.manifest, str(reference)), reference.repository
    place = _Place(reference, workplace, store)
    return place.ingested(layer, lambda offset: resolved.client.open_blob(repository, layer, offset))


def _find_library(reference: Reference, workplace: Workplace, store: Store) -> SifSource:
    access = workplace.open_access()
    client = choose_library(reference, workplace, access.transport)
    name = reference.name if reference.tag or reference.digest else f"{reference.name}:latest"
    image = client.describe(name, workplace.platform.architecture)
    place = _Place(reference, workplace, store)
    if image.digest is not None and image.size is not None:
        layer = Descriptor(SIF_LAYER, image.digest, image.size)
        return place.ingested(layer, lambda offset: client.open_image(image, offset))

    def write(file: BinaryIO) -> None:
        with client.open_image(image) as stream:
            for piece in stream:
                file.write(piece)
        place.check(file)

    key = f"sif from {client.base} {name} {secrets.token_hex(8)}"
    return SifSource(key, None, image.size, write, lambda offset: client.open_image(image, offset), keep=False)


def choose_library(reference: Reference, workplace: Workplace, transport: HttpTransport) -> LibraryClient:
    """The library of a reference: its own host, the setting, the remote in use, or the public one."""
    settings = workplace.settings
    if reference.registry:
        scheme = "http" if settings.no_https else "https"
        return LibraryClient(f"{scheme}://{reference.registry}", transport)
    chosen = settings.library_url if settings.sources["library_url"].kind != "default" else None
    try:
        return find_library(transport, home_directory(os.environ), address=chosen, environ=os.environ)
    except InvalidSetting:  # no remote is configured: library:// means the public library
        return find_library(transport, home_directory(os.environ), address=settings.library_url or KNOWN_LIBRARY)


def _find_address(reference: Reference, workplace: Workplace, store: Store) -> SifSource:
    access, address = workplace.open_access(), reference.path
    with open_url(access.transport, address) as stream:
        size, validator = stream.size, stream.validator
    place = _Place(reference, workplace, store)

    def write(file: BinaryIO) -> None:
        task = workplace.progress.task(reference.default_name(), size)
        download_url(access.transport, address, file, announce=lambda _: task.advance)
        task.finish()
        place.check(file)

    def open_at(offset: int) -> BlobStream:
        return open_url(access.transport, address, offset, validator)

    # the address may hold a password, and the cache keeps keys: a hash stands for it
    proof = f"{validator} {size}" if validator else secrets.token_hex(8)
    key = f"sif at {reference.redacted} {Digest.of(address.encode()).hex[:16]} {proof}"
    return SifSource(key, None, size, write, open_at, keep=bool(validator))


@dataclass(frozen=True, slots=True)
class _Place:
    """What is fetched, and the cache it goes to."""

    reference: Reference
    workplace: Workplace
    store: Store

    def ingested(self, layer: Descriptor, open_at: OpenAt) -> SifSource:
        """A SIF with a known digest: it goes through the cache's downloads, which verify and resume."""
        progress, store = self.workplace.progress, self.store

        def write(file: BinaryIO) -> None:
            task = progress.task(f"SIF {short_name(layer)}", layer.size)
            ingest = store.ingest(layer, open_at, choose_ingest(self.workplace, task.advance))
            for piece in ingest.follow():
                file.write(piece)
            task.finish()
            ingest.close()
            self.check(file)
            store.blobs.drop(layer.digest)  # the cached image has the same bytes; one copy is enough

        return SifSource(f"sif file {layer.digest}", layer.digest, layer.size, write, open_at)

    def check(self, file: BinaryIO) -> None:
        """Refuse a file that is not an image, and warn about another architecture."""
        file.flush()
        file.seek(0)
        start = file.read(PROBE)
        kind = identify_bytes(start)
        if kind not in (FileKind.SIF, FileKind.SQUASHFS):
            raise refuse_as_sif(start, self.reference.redacted)
        if kind is FileKind.SIF:
            header = SifReader(file, self.reference.redacted).header  # its tables must lie inside the file
            compare_platform(Platform(header.architecture), self.reference, self.workplace)


def check_architecture(path: Path, reference: Reference, workplace: Workplace) -> None:
    """Warn about a SIF for another architecture, or refuse it if --arch was given."""
    with explained(path), path.open("rb") as file:
        if identify_file(file) is FileKind.SIF:
            compare_platform(Platform(SifReader(file, str(path)).header.architecture), reference, workplace)
