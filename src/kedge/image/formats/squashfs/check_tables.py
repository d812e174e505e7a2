# SPDX-License-Identifier: BSD-3-Clause
"""Tables of an image that is looked at as a whole: every block of each table, one after the other.

The reader finds what it is asked for by addresses; here all that a table holds is read, so that nothing in it is left
out. Blocks of a table follow each other and are full but for the last, as every known writer makes them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left

from kedge.errors import CorruptImage
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs.layout import METADATA_SIZE, METADATA_STORED, U64
from kedge.image.formats.squashfs.metadata_reader import ImageRange, corrupt

_PIECE = 1 << 20  # bytes of a table, as stored, that are read together


class TableStream:
    """A table of metadata blocks: `data` is a stretch of its bytes, which grows at its end and shrinks at its start."""

    def __init__(self, image: ImageRange, codec: BlockCodec, name: str, start: int, end: int) -> None:
        self.name = name
        self.data = b""
        self.base = 0  # where `data` begins in the uncompressed table
        self.starts = array("Q")  # of the blocks read so far, from the table's start
        self._image, self._codec = image, codec
        self._start, self._end = start, end
        self._next = 0

    def grow(self) -> bool:
        """Read more; False at the table's end."""
        start = self._start + self._next
        if start >= self._end:
            return False
        raw = self._image.read(start, min(_PIECE, self._end - start), self.name)
        parts = [self.data]
        place = 0
        while place < len(raw):
            size = self._measure_block(raw, place, start)
            if place + 2 + size > len(raw):
                break
            parts.append(self._unpack(raw, place, size, start + place))
            self.starts.append(self._next + place)
            place += 2 + size
        self._next += place
        self.data = b"".join(parts)
        return True

    def _measure_block(self, raw: bytes, place: int, start: int) -> int:
        """The size of the block; one that does not end in the piece is left for the next, which begins with it."""
        if place + 2 > len(raw) and start + len(raw) < self._end:
            return METADATA_SIZE
        size = int.from_bytes(raw[place : place + 2], "little") & ~METADATA_STORED
        if not 0 < size <= METADATA_SIZE or start + place + 2 + size > self._end:
            raise corrupt(self.name, start + place, f"a metadata block cannot have {size} bytes here")
        return size

    def _unpack(self, raw: bytes, place: int, size: int, where: int) -> bytes:
        block = raw[place + 2 : place + 2 + size]
        if not raw[place + 1] << 8 & METADATA_STORED:
            try:
                block = self._codec.decompress_block(block, METADATA_SIZE)
            except CorruptImage as problem:
                raise corrupt(self.name, where, problem.message) from problem
        if len(block) != METADATA_SIZE and (where + 2 + size != self._end or not block):
            raise corrupt(self.name, where, f"a metadata block gives {len(block)} bytes and is not the last")
        return block

    def require(self, place: int, size: int) -> None:
        """Have `size` bytes from `place` of `data` on."""
        while len(self.data) < place + size:
            if not self.grow():
                raise self.fault(place, f"the table ends where {size} bytes are needed")

    def drop(self, place: int) -> None:
        """Forget what stands before `place`, which is the start from now on."""
        self.data = self.data[place:]
        self.base += place

    def find_address(self, place: int) -> int:
        """The address of what stands at `place` of `data`."""
        position = self.base + place
        return self.starts[position // METADATA_SIZE] << 16 | position % METADATA_SIZE

    def find_place(self, address: int) -> int:
        """Where in `data` an address is; -1 where it is nowhere in the table, or was dropped."""
        block, offset = address >> 16, address & 0xFFFF
        while (not self.starts or self.starts[-1] < block) and self.grow():
            pass
        number = bisect_left(self.starts, block)
        if number == len(self.starts) or self.starts[number] != block or offset >= METADATA_SIZE:
            return -1
        place = number * METADATA_SIZE + offset - self.base
        return place if place <= len(self.data) else -1

    def fault(self, place: int, message: str) -> CorruptImage:
        """The error for what stands at `place`."""
        block = (self.base + place) // METADATA_SIZE
        offset = self.starts[min(block, len(self.starts) - 1)] if self.starts else 0
        return corrupt(self.name, self._start + offset, message)


def read_indexed(image: ImageRange, codec: BlockCodec, name: str, index: int, size: int) -> tuple[bytes, int]:
    """Return all `size` bytes of a table with an index, right behind its blocks, and where the first block is."""
    count = -(-size // METADATA_SIZE)
    places = read_words(image.read(index, U64.size * count, name), "Q")
    if not count:
        return b"", index
    if list(places) != sorted(set(places)) or places[-1] >= index:
        raise corrupt(name, index, "the index is not in order")
    stream = TableStream(image, codec, name, places[0], index)
    while len(stream.data) <= size and stream.grow():
        pass
    if len(stream.data) != size or [places[0] + start for start in stream.starts] != list(places):
        raise corrupt(
            name, index, f"the index does not fit to its blocks, which give {len(stream.data)} of {size} bytes"
        )
    return stream.data, places[0]


def read_words(data: bytes, code: str) -> array[int]:
    """Numbers as an image stores them."""
    words = array(code, data)
    if sys.byteorder == "big":
        words.byteswap()
    return words
