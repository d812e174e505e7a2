# SPDX-License-Identifier: BSD-3-Clause
"""What layouts and archives have in common: stored images, and blobs that are checked while they are read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from kedge.base.digest import Digest
from kedge.base.manifest import ImageConfig, Manifest, parse_config
from kedge.base.platform import Platform
from kedge.errors import CorruptImage, DigestMismatch, FileProblem
from kedge.system.files import explained

PIECE = 2 << 20


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """One layer blob; `open` gives its bytes as stored, checked against `digest`, as often as it is called."""

    name: str
    digest: Digest | None
    diff_id: Digest | None
    size: int
    open: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """One image in a layout or archive; valid until the source it came from is closed."""

    manifest: Manifest
    config: bytes
    layers: tuple[StoredLayer, ...]
    tag: str | None = None

    def parsed_config(self) -> ImageConfig:
        """The config as a value."""
        return parse_config(self.config)


class StoredImages(Protocol):
    """A layout or archive that holds images. Close it, or use it in a `with` block."""

    def tags(self) -> list[str]:
        """The names of the images inside, sorted; unnamed images are not listed."""
        ...

    def image(self, tag: str | None = None, platform: Platform | None = None) -> StoredImage:
        """The image called `tag` (None: the only one there) for `platform` (None: whichever comes first).

        An image that there is once only is given whatever it is for.
        """
        ...

    def close(self) -> None:
        """Release the file; idempotent."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlobFiles(Protocol):
    """Named files for reading: a directory, or the members of a tar archive."""

    where: str

    def has(self, name: str) -> bool:
        """Whether a regular file of this name is there."""
        ...

    def size(self, name: str) -> int:
        """Return the length of a member; CorruptImage when it is not there."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member in order, in bounded pieces."""
        ...

    def close(self) -> None:
        """Release what is open; idempotent."""
        ...


class BlobDirectory:
    """A directory as `BlobFiles`; names come from digests and constants, never unchecked from a document."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = str(path)

    def has(self, name: str) -> bool:
        """Whether a regular file of this name is there."""
        try:
            return stat.S_ISREG((self._path / name).stat().st_mode)
        except (OSError, ValueError):
            return False

    def size(self, name: str) -> int:
        """The file's length."""
        with explained(self._path / name):
            return (self._path / name).stat().st_size

    def chunks(self, name: str) -> Iterator[bytes]:
        """The file's bytes; a FIFO or device in place of a blob is refused and never waited for."""
        path = self._path / name
        with (
            explained(path),
            os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file,
        ):
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileProblem(f"{path} is not a regular file")
            while piece := file.read(PIECE):
                yield piece

    def close(self) -> None:
        """Do nothing: no file is held open."""


def read_small(files: BlobFiles, name: str, limit: int) -> bytes:
    """A whole document, refused when it is larger than any honest one."""
    if not files.has(name):
        raise CorruptImage(f"{files.where} has no {name}", context={"file": name})
    size = files.size(name)
    if size > limit:
        raise CorruptImage(f"{name} in {files.where} has {size} bytes; at most {limit} are expected")
    data = b"".join(files.chunks(name))
    if len(data) > limit:  # it grew while it was read
        raise CorruptImage(f"{name} in {files.where} is larger than {limit} bytes")
    return data


def verify_stream(chunks: Iterable[bytes], digest: Digest, size: int | None, where: str) -> Iterator[bytes]:
    """Pass chunks on; raises DigestMismatch at the first byte too many, or at the end when size or digest differ."""
    hasher = hashlib.new(digest.algorithm)
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        if size is not None and seen > size:
            raise DigestMismatch(f"{where} is longer than the {size} bytes its descriptor promises")
        hasher.update(chunk)
        yield chunk
    if size is not None and seen != size:
        raise DigestMismatch(
            f"{where} has {seen} bytes, its descriptor promises {size}", context={"digest": str(digest)}
        )
    if hasher.hexdigest() != digest.hex:
        raise DigestMismatch(
            f"{where} does not match its digest",
            context={"expected": str(digest), "found": f"{digest.algorithm}:{hasher.hexdigest()}"},
            hint="the file is damaged: copy or download it again",
        )


def pair_layers(layers: tuple[StoredLayer, ...], diff_ids: tuple[Digest, ...], where: str) -> tuple[StoredLayer, ...]:
    """Give each layer its diff_id; raises when the config lists another number of them."""
    if len(layers) != len(diff_ids):
        raise CorruptImage(f"{where}: the manifest has {len(layers)} layers, the config lists {len(diff_ids)} diff_ids")
    return tuple(
        StoredLayer(layer.name, layer.digest, diff_id, layer.size, layer.open)
        for layer, diff_id in zip(layers, diff_ids, strict=True)
    )
