# SPDX-License-Identifier: BSD-3-Clause
"""The listing of one directory: runs of entries, each run under a header with what its entries share.

A run ends after 256 entries, where the inodes are in another block, and where the index gets an entry. That is found
for many names at once, because there may be millions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kedge.errors import HostileImage, UnsupportedFormat
from kedge.formats.squashfs import layout
from kedge.formats.squashfs.layout import DIRECTORY_ENTRY, DIRECTORY_HEADER, DIRECTORY_RUN
from kedge.formats.squashfs.table_writer import MetadataWriter

_NO_NAMES = frozenset((b"", b".", b".."))


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory's listing in the directory table; `index` holds packed entries that help find names in long ones."""

    address: int
    size: int
    index_count: int
    index: bytes
    subdirectories: int


@dataclass(frozen=True, slots=True)
class Children:
    """What is in a directory, in byte order of the names; `numbers` is a range where the inodes are in a row."""

    names: Sequence[bytes]
    addresses: Sequence[int]
    numbers: Sequence[int]
    kinds: Sequence[int]


class ListingWriter:
    """Puts a listing together and stores it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._index: list[tuple[int, bytes]] = []
        self._indexed = 0  # offset of the last run that has an index entry

    def add(self, children: Children) -> None:
        """Add all entries."""
        names = children.names
        _refuse_names(names)
        sizes = list(accumulate([len(name) + DIRECTORY_ENTRY.size for name in names], initial=0))
        start = 0
        while start < len(names):
            self._begin_run(names[start])
            room = layout.METADATA_SIZE - self._size + self._indexed
            end = min(start + DIRECTORY_RUN, bisect_right(sizes, sizes[start] + room) - 1)
            end = _end_block(children, start, max(end, start + 1))
            self._parts += _pack_run(children, start, end)
            self._size += sizes[end] - sizes[start]
            start = end

    def _begin_run(self, name: bytes) -> None:
        if self._size + 20 + len(name) - self._indexed > layout.METADATA_SIZE:
            self._index.append((self._size, name))
            self._indexed = self._size
        self._size += DIRECTORY_HEADER.size

    def store(self, table: MetadataWriter, subdirectories: int) -> Listing:
        """Append the listing to the directory table."""
        if len(self._index) > layout.MAXIMUM_INDEX:
            raise UnsupportedFormat(f"the names in one directory take {self._size} bytes, more than SquashFS can index")
        base = table.offset
        address = table.append(b"".join(self._parts))
        index = b"".join(
            layout.DIRECTORY_INDEX.pack(offset, table.starts[(base + offset) // layout.METADATA_SIZE], len(name) - 1)
            + name
            for offset, name in self._index
        )
        return Listing(address, self._size, len(self._index), index, subdirectories)


def _end_block(children: Children, start: int, end: int) -> int:
    """The first entry up to `end` that cannot share a header with that at `start`."""
    addresses, numbers = children.addresses, children.numbers
    block, base = addresses[start] >> 16, numbers[start]
    if isinstance(numbers, range):  # inodes in a row: addresses rise, and numbers stay near
        return bisect_left(addresses, block + 1 << 16, start, end)
    for place in range(start + 1, end):
        if addresses[place] >> 16 != block or not -32768 <= numbers[place] - base <= 32767:
            return place
    return end


def _pack_run(children: Children, start: int, end: int) -> list[bytes]:
    """A header, and entries that alternate with their names."""
    names, addresses, numbers = children.names[start:end], children.addresses[start:end], children.numbers[start:end]
    base = numbers[0]
    offsets = [address & 0xFFFF for address in addresses]
    deltas = range(len(names)) if isinstance(numbers, range) else [number - base for number in numbers]
    lengths = [len(name) - 1 for name in names]
    run = [DIRECTORY_HEADER.pack(len(names) - 1, addresses[0] >> 16, base)] * (2 * len(names) + 1)
    run[1::2] = map(DIRECTORY_ENTRY.pack, offsets, deltas, children.kinds[start:end], lengths)
    run[2::2] = names
    return run


def _refuse_names(names: Sequence[bytes]) -> None:
    """Raise for a name that no file can have; all of a directory are looked at in one go."""
    if not names:
        return
    joined = b"/".join(names)
    if (
        joined.count(b"/") == len(names) - 1
        and b"\0" not in joined
        and max(map(len, names)) <= layout.NAME_LIMIT
        and _NO_NAMES.isdisjoint(names)
    ):
        return
    for name in names:
        if not 0 < len(name) <= layout.NAME_LIMIT or b"/" in name or b"\0" in name or name in _NO_NAMES:
            raise HostileImage(f"{name[:80]!r} cannot be the name of a file")
