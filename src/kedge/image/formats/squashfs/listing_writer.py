# SPDX-License-Identifier: BSD-3-Clause
"""The listing of one directory: runs of entries, each run under a header with what its entries share.

A run ends after 256 entries, where the inodes are in another block, and where the index gets an entry. That is found
for many names at once, because there may be millions.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from kedge.errors import HostileImage, UnsupportedFormat
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.layout import DIRECTORY_ENTRY, DIRECTORY_HEADER, DIRECTORY_RUN
from kedge.image.formats.squashfs.table_writer import MetadataWriter

_DELTAS = array("H", range(DIRECTORY_RUN))  # of the numbers of inodes in a row
_LESS_ONE = bytes((255, *range(255)))  # by a name's length: what an entry says of it
_NO_NAMES = frozenset((b"", b".", b".."))


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory's listing: its place in the directory table; `index` names runs that help find names in long ones."""

    place: int
    size: int
    index: list[tuple[int, bytes]]  # offset in the listing, first name
    subdirectories: int

    def pack_index(self, table: MetadataWriter) -> bytes:
        """The index, once all of the listing is settled."""
        return b"".join(
            layout.DIRECTORY_INDEX.pack(offset, table.find_address(self.place + offset) >> 16, len(name) - 1) + name
            for offset, name in self.index
        )


@dataclass(frozen=True, slots=True)
class Children:
    """What is in a directory, in byte order of the names; `numbers` is a range where the inodes are in a row."""

    names: Sequence[bytes]
    addresses: array[int]
    numbers: Sequence[int]
    kinds: bytes


class ListingWriter:
    """Puts a listing together and stores it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._index: list[tuple[int, bytes]] = []
        self._indexed = 0  # offset of the last run that has an index entry

    def add(self, children: Children) -> None:
        """Add all entries."""
        names, entry = children.names, DIRECTORY_ENTRY.size
        lengths = _measure_names(names)
        ends = list(accumulate(lengths, initial=0))  # of the names alone
        start = 0
        while start < len(names):
            self._begin_run(names[start])
            end = min(start + DIRECTORY_RUN, len(names))
            room = layout.METADATA_SIZE - self._size + self._indexed
            if ends[end] - ends[start] + (end - start) * entry > room:
                end = max(_find_end(ends, start, end, room), start + 1)
            end = _end_block(children, start, end)
            self._parts += _pack_run(children, lengths, start, end)
            self._size += ends[end] - ends[start] + (end - start) * entry
            start = end

    def _begin_run(self, name: bytes) -> None:
        if self._size + 20 + len(name) - self._indexed > layout.METADATA_SIZE:
            self._index.append((self._size, name))
            self._indexed = self._size
        self._size += DIRECTORY_HEADER.size

    def store(self, table: MetadataWriter, subdirectories: int) -> Listing:
        """Add the listing to the directory table."""
        if len(self._index) > layout.MAXIMUM_INDEX:
            raise UnsupportedFormat(f"the names in one directory take {self._size} bytes, more than SquashFS can index")
        return Listing(table.add(b"".join(self._parts)), self._size, self._index, subdirectories)


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


def _find_end(ends: list[int], start: int, end: int, room: int) -> int:
    """The last place up to `end` up to which all from `start` on fits."""
    entry = DIRECTORY_ENTRY.size
    limit = ends[start] + start * entry + room
    return bisect_right(range(end + 1), limit, start, end + 1, key=lambda place: ends[place] + place * entry) - 1


def _pack_run(children: Children, lengths: bytes, start: int, end: int) -> list[bytes]:
    """A header, and entries that alternate with their names."""
    count, base, block = end - start, children.numbers[start], children.addresses[start] >> 16
    run = [DIRECTORY_HEADER.pack(count - 1, block, base)] * (2 * count + 1)
    run[1::2] = _cut_entries(count).unpack(_pack_entries(children, lengths, start, end))
    run[2::2] = children.names[start:end]
    return run


def _pack_entries(children: Children, lengths: bytes, start: int, end: int) -> bytearray:
    """The bytes of `DIRECTORY_ENTRY` for all in a run, column by column, without their names."""
    addresses, numbers = children.addresses[start:end], children.numbers[start:end]
    if isinstance(numbers, range):
        deltas = _DELTAS[: len(numbers)]
    else:
        deltas = array("h", [number - numbers[0] for number in numbers])
    if sys.byteorder == "big":
        addresses.byteswap()
        deltas.byteswap()
    places, differences = addresses.tobytes(), deltas.tobytes()
    entries = bytearray(DIRECTORY_ENTRY.size * (end - start))
    entries[0::8], entries[1::8] = places[0::8], places[1::8]  # the lower half of an address is an offset
    entries[2::8], entries[3::8] = differences[0::2], differences[1::2]
    entries[4::8] = children.kinds[start:end]
    entries[6::8] = lengths[start:end].translate(_LESS_ONE)
    return entries


@lru_cache(DIRECTORY_RUN)
def _cut_entries(count: int) -> struct.Struct:
    return struct.Struct(f"{DIRECTORY_ENTRY.size}s" * count)


def _measure_names(names: Sequence[bytes]) -> bytes:
    """The lengths of names; raises for one that no file can have. All of a directory are looked at in one go."""
    joined = b"/".join(names)
    if not names or (joined.count(b"/") == len(names) - 1 and b"\0" not in joined and _NO_NAMES.isdisjoint(names)):
        with contextlib.suppress(ValueError):  # more than 255
            return bytes(map(len, names))
    for name in names:
        if not 0 < len(name) <= layout.NAME_LIMIT or b"/" in name or b"\0" in name or name in _NO_NAMES:
            raise HostileImage(f"{name[:80]!r} cannot be the name of a file")
    raise AssertionError("one of the names is refused")
