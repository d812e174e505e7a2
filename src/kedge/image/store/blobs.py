# SPDX-License-Identifier: BSD-3-Clause
"""Content-addressed files: what stands under a digest is whole, or it is dropped when that is noticed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor
from kedge.errors import DigestMismatch, FileProblem
from kedge.image.store.layout import Layout, is_listed, sync_folder
from kedge.system.files import explain, explained

PIECE = 1 << 20


class Hash(Protocol):
    """What hashlib gives."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add data; large pieces are hashed without the interpreter lock."""

    def hexdigest(self) -> str:
        """The digest of all data so far."""


class WrittenLayer(Protocol):
    """What a writer of layers says of the layer it wrote."""

    @property
    def digest(self) -> Digest:
        """Return the digest of the bytes as they were written."""
        ...

    @property
    def diff_id(self) -> Digest:
        """Return the digest of the bytes before they were compressed."""
        ...

    @property
    def size(self) -> int:
        """How many were written."""
        ...


class Blobs:
    """The blobs of one cache."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def path(self, digest: Digest) -> Path:
        """Where the blob stands, if it is there."""
        return self.layout.blob(digest)

    def size(self, digest: Digest) -> int | None:
        """The size of the blob; None when it is not there."""
        try:
            return self.path(digest).stat().st_size
        except OSError:
            return None

    def is_present(self, descriptor: Descriptor) -> bool:
        """Whether a file of the right size is there, asking the server and not a client's memory."""
        return self.size(descriptor.digest) == descriptor.size or (
            is_listed(self.path(descriptor.digest)) and self.size(descriptor.digest) == descriptor.size
        )

    def check(self, descriptor: Descriptor, cancelled: threading.Event | None = None) -> bool:
        """Whether the blob is there and whole; a damaged one is dropped, so that it is fetched again.

        A blob that fits its digest but not the descriptor is kept: then the manifest lies, which is DigestMismatch.
        """
        path = self.path(descriptor.digest)
        size = self.size(descriptor.digest)
        if size is None:
            return False
        if hash_file(path, descriptor.digest.algorithm, cancelled) == descriptor.digest.hex:
            if size != descriptor.size:
                raise DigestMismatch(
                    f"{descriptor.digest} has {size} bytes, but the manifest promises {descriptor.size}",
                    context={"digest": str(descriptor.digest)},
                    hint="the manifest is wrong: ask the image's owner to push the image again",
                )
            return True
        if cancelled is None or not cancelled.is_set():
            self.drop(descriptor.digest)
        return False

    def touch(self, digest: Digest) -> None:
        """Note that the blob was used now; not in a read-only cache."""
        with contextlib.suppress(OSError):
            os.utime(self.path(digest))

    def drop(self, digest: Digest) -> None:
        """Remove the blob, if it is there."""
        with contextlib.suppress(FileNotFoundError), explained(self.path(digest)):
            self.path(digest).unlink(missing_ok=True)

    def commit(self, temporary: Path, digest: Digest) -> Path:
        """Give a complete, verified and synced file its name."""
        target = self.path(digest)
        folder = self.layout.folder("blobs", digest.algorithm, digest.hex[:2])
        with explained(target):
            temporary.replace(target)
        sync_folder(folder)
        return target

    def add(self, data: bytes, *, is_lasting: bool = True) -> Digest:
        """Keep a small document, such as a manifest or a config; not `is_lasting`: a registry has it, too."""
        digest = Digest.of(data)
        if self.size(digest) != len(data):
            self.layout.folder("blobs", digest.algorithm, digest.hex[:2])
            self.layout.write(self.path(digest), data, is_lasting=is_lasting)
        return digest

    def add_written(self, write: Callable[[BinaryIO], WrittenLayer]) -> WrittenLayer:
        """Keep what `write` writes under the digest that it returns; nothing stays of a write that fails."""
        temporary = self.layout.temporary("layer")
        try:
            with explained(temporary):
                descriptor = os.open(
                    temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, self.layout.file_mode
                )
            with explained(temporary), os.fdopen(descriptor, "wb") as file:
                layer = write(file)
                file.flush()
                if self.size(layer.digest) == layer.size:
                    self.touch(layer.digest)
                    return layer
                os.fsync(file.fileno())
            self.commit(temporary, layer.digest)
            return layer
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def read(self, digest: Digest, limit: int) -> bytes | None:
        """A small blob, verified; None when it is not there, is damaged (then it is dropped) or exceeds `limit`."""
        try:
            with self.path(digest).open("rb") as file:
                data = file.read(limit + 1)
        except OSError:
            return None
        if len(data) > limit:
            return None
        if new_hash(digest.algorithm, data).hexdigest() != digest.hex:
            with contextlib.suppress(FileProblem):
                self.drop(digest)
            return None
        self.touch(digest)
        return data


def new_hash(algorithm: str, data: bytes = b"") -> Hash:
    """A running hash of one of the algorithms that a Digest can have."""
    return hashlib.new(algorithm, data, usedforsecurity=False)


def hash_file(path: Path, algorithm: str, cancelled: threading.Event | None = None) -> str:
    """The hexadecimal digest of a file; "" when it vanished, the medium gives errors, or the work was cancelled."""
    try:
        with path.open("rb", buffering=0) as file:
            return hash_open(file.fileno(), algorithm, cancelled)
    except OSError as problem:
        if problem.errno in (errno.EIO, errno.ENOENT, errno.ESTALE):
            return ""
        raise explain(problem, path) from problem


def hash_open(descriptor: int, algorithm: str, cancelled: threading.Event | None = None) -> str:
    """Hash an open file, from its first byte, wherever its position is."""
    hasher = new_hash(algorithm)
    buffer = bytearray(PIECE)
    view, offset = memoryview(buffer), 0
    while count := os.preadv(descriptor, [buffer], offset):
        hasher.update(view[:count])
        offset += count
        if cancelled is not None and cancelled.is_set():
            return ""
    return hasher.hexdigest()
