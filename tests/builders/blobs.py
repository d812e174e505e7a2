# SPDX-License-Identifier: BSD-3-Clause
"""Blobs made from a seed, and sources of them that count, break, lie and dawdle."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor
from kedge.errors import NetworkFailed


def make_content(size: int, seed: str = "blob") -> bytes:
    """The same bytes for the same size and seed, and no two blocks alike."""
    return hashlib.shake_128(seed.encode()).digest(size)


def describe(content: bytes) -> Descriptor:
    """The descriptor of a blob with this content."""
    return Descriptor("application/octet-stream", Digest.of(content), len(content))


@dataclass
class BlobSource:
    """`open_at` for an ingest; each opening is noted, in a file too, so that other processes can be counted."""

    content: bytes
    log: Path | None = None
    piece: int = 256 << 10
    pause: float = 0.0  # seconds before each piece
    break_at: list[int] = field(default_factory=list)  # offsets at which a connection breaks, one per opening
    ignores_range: bool = False
    offsets: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def open_at(self, offset: int) -> Iterator[BlobStream]:
        self.offsets.append(offset)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{offset}\n")
        begin = 0 if self.ignores_range else offset
        yield BlobStream(self, begin, self.break_at.pop(0) if self.break_at else None)


class BlobStream:
    """One connection of a BlobSource."""

    def __init__(self, source: BlobSource, offset: int, end: int | None) -> None:
        self.offset = offset
        self._source = source
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        position = self.offset
        content = self._source.content
        while position < len(content):
            if self._source.pause:
                time.sleep(self._source.pause)
            stop = position + self._source.piece
            if self._end is not None and stop > self._end:
                yield content[position : self._end]
                raise NetworkFailed(f"the connection broke at {self._end}")
            yield content[position:stop]
            position = stop
