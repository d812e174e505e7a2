# SPDX-License-Identifier: BSD-3-Clause
"""Push: an image on this machine into a registry, as layers (`docker://`) or as a SIF file (`oras://`).

Blobs that the registry has already are not sent again, those that another of its repositories has are mounted from
there; the manifest goes last, so nobody sees half an image.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from kedge.base.digest import Digest
from kedge.base.frozen import JsonValue
from kedge.base.manifest import MAXIMUM_MANIFEST, OCI_MANIFEST, Descriptor, Manifest, parse_manifest
from kedge.base.reference import Reference, Transport
from kedge.errors import FileProblem, KedgeError, UsageError
from kedge.image.formats.oci.stored_image import StoredImage, StoredLayer
from kedge.image.formats.sif.reader import SifReader
from kedge.image.make_layers import LayerOptions, as_stored_image, compress_layers
from kedge.image.registry.client import RegistryClient
from kedge.image.registry.oras import SIF_CONFIG_BYTES, sif_config, sif_layer, sif_manifest
from kedge.image.sources.image_source import ImageSource
from kedge.image.sources.open_local import open_local_image
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained

_PIECE = 1 << 20
_ASKED = 500  # remembered names that are looked at for a repository to mount from


@dataclass(frozen=True, slots=True)
class _PushedBlob(JsonValue):
    """One blob of the image and what became of it."""

    digest: Digest
    size: int
    state: str  # 'sent' or 'there', which mounted ones are too; with a dry run 'to send' or 'there'


@dataclass(frozen=True, slots=True)
class Pushed(JsonValue):
    """What a push sent, or with a dry run would send."""

    json_also = ("sent", "reused")

    source: str
    target: str
    digest: Digest
    blobs: tuple[_PushedBlob, ...]

    @property
    def sent(self) -> int:
        """Bytes that went, or would go, over the network."""
        return sum(blob.size for blob in self.blobs if blob.state in ("sent", "to send"))

    @property
    def reused(self) -> int:
        """Bytes that the registry had."""
        return sum(blob.size for blob in self.blobs) - self.sent


def push(source: Reference, target: Reference, workplace: Workplace, *, dry_run: bool = False) -> Pushed:
    """Send the image; raises before anything is sent when it cannot be pushed there."""
    _check_target(target)
    with workplace.open_access() as access, workplace.open_store() as store:
        client = RegistryClient(target.registry, access)
        sender = _Sender(client, target, workplace, store, dry_run)
        if target.transport is Transport.ORAS:
            return sender.push_sif(source)
        image = _open_source(source, workplace, store)
        try:
            return sender.push_image(source, image)
        finally:
            image.close()


def push_opened(image: ImageSource, target: Reference, workplace: Workplace, store: Store) -> Pushed:
    """Send an image that is open already, such as one that was just built; the caller closes it."""
    _check_target(target)
    with workplace.open_access() as access:
        client = RegistryClient(target.registry, access)
        return _Sender(client, target, workplace, store, dry_run=False).push_image(target, image)


def _open_source(source: Reference, workplace: Workplace, store: Store) -> ImageSource:
    """An image of this host; `docker://NAME` is one of the cache that was built or pulled under this name."""
    if source.transport is not Transport.DOCKER:
        return open_local_image(source, workplace)
    from kedge.image.local_names import find_named  # late, all: most images are files
    from kedge.image.sources.fetch_layers import open_remote_image
    from kedge.image.sources.resolve import resolve

    find_named(str(source), workplace, store)
    return open_remote_image(resolve(source, workplace, store, offline=True), workplace, store)


def _check_target(target: Reference) -> None:
    """Refuse what cannot be pushed to."""
    if target.transport not in (Transport.DOCKER, Transport.ORAS):
        raise UsageError(
            f"cannot push to {target.redacted}",
            hint="push to docker://REGISTRY/NAME:TAG (layers) or oras://REGISTRY/NAME:TAG (a SIF file)",
        )
    if target.digest is not None:
        raise UsageError(f"cannot push to a digest: {target}", hint="give a tag; the digest follows from the content")


@dataclass(slots=True)
class _Sender:
    """One push: what goes where, and what became of each blob."""

    client: RegistryClient
    target: Reference
    workplace: Workplace
    store: Store
    dry_run: bool
    blobs: list[_PushedBlob] = field(default_factory=list)

    def push_image(self, source: Reference, image: ImageSource) -> Pushed:
        """An image of any kind, as layers."""
        workplace, target = self.workplace, self.target
        # who may not push learns it before the hard work
        self.client.has_blob(target.repository, sif_config().digest)
        making = LayerOptions(workplace.settings.temporary_directory, workplace.threads, workplace.progress)
        with as_stored_image(image, target.tag, making) as stored:
            if image.record.kind != "docker-archive":  # a daemon's image is one, too
                return self.push_layers(source, stored)
            with compress_layers(stored, making) as compressed:
                return self.push_layers(source, compressed)

    def push_layers(self, source: Reference, image: StoredImage) -> Pushed:
        """Layers first, then the config, then the manifest."""
        origins = _find_origins(self.store, self.target)
        for layer, descriptor in zip(image.layers, image.manifest.layers, strict=True):
            self._send(descriptor, partial(open_layer, layer), origins.get(descriptor.digest))
        self._send(image.manifest.config, lambda: io.BytesIO(image.config))
        return self._finish(source, image.manifest.raw, image.manifest.media_type)

    def push_sif(self, source: Reference) -> Pushed:
        """The SIF as one blob."""
        path = Path(source.path)
        if source.transport is not Transport.FILE or path.is_dir():
            raise UsageError(
                f"cannot push {source.redacted} to oras://, which takes SIF files only",
                hint=f"make one first: kedge convert {source} x.sif",
            )
        with explained(path), path.open("rb") as file:
            SifReader(file, str(path))
            layer = sif_layer(_hash(file), os.fstat(file.fileno()).st_size)
        self._send(sif_config(), lambda: io.BytesIO(SIF_CONFIG_BYTES))
        self._send(
            layer, lambda: _open_unchanged(path, layer.size), _find_origins(self.store, self.target).get(layer.digest)
        )
        return self._finish(source, sif_manifest(layer, path.name), OCI_MANIFEST)

    def _send(self, blob: Descriptor, open_content: Callable[[], BinaryIO], origin: str | None = None) -> None:
        if any(blob.digest == done.digest for done in self.blobs):
            return
        repository = self.target.repository
        if self.dry_run:
            state = "there" if self.client.has_blob(repository, blob.digest) else "to send"
            self.blobs.append(_PushedBlob(blob.digest, blob.size, state))
            return
        task = self.workplace.progress.task(f"push {blob.digest.hex[:12]}", blob.size)
        was_sent = self.client.upload_blob(repository, blob, open_content, origin, advance=task.advance)
        task.finish()
        self.blobs.append(_PushedBlob(blob.digest, blob.size, "sent" if was_sent else "there"))

    def _finish(self, source: Reference, raw: bytes, media_type: str) -> Pushed:
        digest = Digest.of(raw)
        if not self.dry_run:
            digest = self.client.put_manifest(self.target.repository, self.target.tag or "latest", raw, media_type)
            with contextlib.suppress(KedgeError):  # the image is pushed, even if the cache cannot be written
                self.store.add_blob(raw)  # the next push to this registry finds here what it may mount
                self.store.remember(str(self.target), self.workplace.platform, digest)
        return Pushed(source.redacted, str(self.target), digest, tuple(self.blobs))


def open_layer(layer: StoredLayer) -> BinaryIO:
    """The layer's bytes as a file, without a copy on disk."""
    return cast("BinaryIO", _LayerFile(layer))


class _LayerFile(io.RawIOBase):
    """A layer as a file for uploads: read from its stream; going back means to begin the stream again.

    It reads one piece ahead, so that a layer which fails its own check at the end is never sent whole.
    """

    def __init__(self, layer: StoredLayer) -> None:
        super().__init__()
        self._layer = layer
        self._begin()

    def _begin(self) -> None:
        self._pieces = (piece for piece in self._layer.open() if piece)
        self._rest, self._following = memoryview(b""), next(self._pieces, b"")

    def readable(self) -> bool:
        """Whether the file can be read: always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Begin again and pass over what was sent: only a broken upload asks for that."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the start")
        self._begin()
        left = offset
        while left and (piece := self.read(min(left, _PIECE))):
            left -= len(piece)
        return offset - left

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """The next bytes, at most to the end of a piece."""
        if not self._rest:
            self._rest, self._following = memoryview(self._following), next(self._pieces, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _find_origins(store: Store, target: Reference) -> dict[Digest, str]:
    """Blobs that other repositories of the target's registry have, as far as the cache records pulls and pushes."""
    origins: dict[Digest, str] = {}
    for record in store.names.list_newest(_ASKED):
        try:
            reference = Reference.parse(record.reference)
            raw = store.read_blob(record.digest, MAXIMUM_MANIFEST) if reference.registry == target.registry else None
            manifest = parse_manifest(raw) if raw is not None else None
        except KedgeError:
            continue
        if isinstance(manifest, Manifest) and reference.repository != target.repository:
            for layer in manifest.layers:
                origins.setdefault(layer.digest, reference.repository)
    return origins


def _open_unchanged(path: Path, size: int) -> BinaryIO:
    """The file again, if it still has the size that was hashed; the registry checks the rest."""
    file = path.open("rb")
    if os.fstat(file.fileno()).st_size != size:
        file.close()
        raise FileProblem(f"{path} changed during the push", hint="push it again when nothing writes to it")
    return file


def _hash(file: BinaryIO) -> Digest:
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return Digest("sha256", digest.hexdigest())
