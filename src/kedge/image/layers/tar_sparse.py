# SPDX-License-Identifier: BSD-3-Clause
"""Sparse files in tar: GNU's old header map and the three PAX forms (0.0, 0.1, 1.0), expanded into data and zeros.

A map is a list of (offset, length) pieces of data; what lies between is zeros. Problems are raised as ValueError.
Specification: GNU tar manual, "Storing Sparse Files".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kedge.base.tree import Buffer
from kedge.image.layers.tar_layout import parse_number
from kedge.image.layers.tar_pax import MAXIMUM_EXTENSION, Records

MAXIMUM_PIECES = 65536
MAXIMUM_SIZE = 1 << 62
_ZEROS = bytes(1 << 18)


@dataclass(frozen=True, slots=True)
class SparseMap:
    """Where a sparse file's stored data belongs, and how large the file really is."""

    size: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def stored(self) -> int:
        """Bytes of data in the archive."""
        return sum(length for _, length in self.pieces)


def check_map(size: int, pieces: list[tuple[int, int]]) -> SparseMap:
    """A map whose pieces are in order, apart from each other and inside the file."""
    if not 0 <= size <= MAXIMUM_SIZE:
        raise ValueError(f"a sparse file of {size} bytes")
    end = 0
    for offset, length in pieces:
        if offset < end or length < 0 or offset + length > size:
            raise ValueError(f"a sparse piece of {length} bytes at {offset} does not fit into {size} bytes")
        end = offset + length
    return SparseMap(size, tuple(piece for piece in pieces if piece[1]))


def parse_header_pairs(block: bytes, start: int, count: int) -> list[tuple[int, int]]:
    """The pairs of an old GNU header (4 of them) or of an extension block (21); an empty pair ends the list."""
    pairs = []
    for place in range(start, start + 24 * count, 24):
        field = block[place : place + 24]
        if not field.strip(b"\0 "):
            break
        pairs.append((parse_number(field[:12]), parse_number(field[12:])))
    return pairs


def parse_pax_map(records: Records) -> SparseMap | None:
    """The map of PAX forms 0.0 and 0.1, None when the records tell of no such file."""
    text = records.get(b"GNU.sparse.map")
    size = records.get(b"GNU.sparse.size") or records.get(b"GNU.sparse.realsize")
    if size is None or is_map_in_data(records):
        return None
    numbers = [_decimal(field) for field in text.split(b",")] if text else []
    if len(numbers) % 2 or len(numbers) > 2 * MAXIMUM_PIECES:
        raise ValueError(f"a sparse map of {len(numbers)} numbers")
    return check_map(_decimal(size), list(zip(numbers[::2], numbers[1::2], strict=True)))


def is_map_in_data(records: Records) -> bool:
    """Whether the records are PAX form 1.0, whose map stands before the data."""
    return records.get(b"GNU.sparse.major") == b"1"


class MapParser:
    """Reads the map of PAX form 1.0 block by block: decimal numbers, one per line, padded to a whole block."""

    def __init__(self, records: Records) -> None:
        self._size = _decimal(records.get(b"GNU.sparse.realsize", b""))
        self._blocks: list[bytes] = []
        self._lines = 0
        self._count: int | None = None

    @property
    def consumed(self) -> int:
        """Bytes of map taken so far."""
        return sum(map(len, self._blocks))

    def feed(self, block: bytes) -> SparseMap | None:
        """Take one block; gives the map once it is complete."""
        self._blocks.append(block)
        self._lines += block.count(b"\n")
        if len(self._blocks) > MAXIMUM_EXTENSION // len(block):
            raise ValueError("a sparse map of more than 1 MiB")
        if self._count is None:
            self._count = _decimal(block.partition(b"\n")[0])
            if self._count > MAXIMUM_PIECES:
                raise ValueError(f"a sparse map of {self._count} pieces")
        if self._lines <= 2 * self._count:
            return None
        numbers = [_decimal(field) for field in b"".join(self._blocks).split(b"\n")[1 : 2 * self._count + 1]]
        return check_map(self._size, list(zip(numbers[::2], numbers[1::2], strict=True)))


def expand(sparse: SparseMap, data: Iterator[Buffer]) -> Iterator[Buffer]:
    """The file's content: stored pieces in their places, zeros between them; `data` yields the stored bytes."""
    position = 0
    left: Buffer = b""
    for offset, length in sparse.pieces:
        yield from _zeros(offset - position)
        position = offset + length
        while length:
            if not left:
                left = next(data)
            part = left[:length]
            yield part
            length -= len(part)
            left = left[len(part) :]
    yield from _zeros(sparse.size - position)


def _zeros(count: int) -> Iterator[Buffer]:
    while count >= len(_ZEROS):
        yield _ZEROS
        count -= len(_ZEROS)
    if count:
        yield memoryview(_ZEROS)[:count]


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"{text[:40]!r} in a sparse map is not a number")
    return int(text)
