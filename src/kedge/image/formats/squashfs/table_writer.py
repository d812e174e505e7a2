# SPDX-License-Identifier: BSD-3-Clause
"""Tables of an image being written: metadata blocks, the id table, the xattr table, and tables with an index."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

from kedge.base.tree import Buffer, Xattrs
from kedge.errors import UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs.layout import (
    INVALID_TABLE,
    INVALID_XATTR,
    MAXIMUM_IDS,
    METADATA_SIZE,
    METADATA_STORED,
    U16,
    U32,
    XATTR_ENTRY,
    XATTR_ID,
    XATTR_PREFIXES,
    XATTR_TABLE,
    XATTR_VALUE_LIMIT,
)

_TOGETHER = 16  # blocks that are worth what it takes to begin with many


class MetadataWriter:
    """A stream of records cut into compressed blocks of 8 KiB.

    A record's address is known once all blocks before its own are compressed. `append` sees to that at once; `add` puts
    it off until `settle`, which compresses many blocks together, on threads.
    """

    def __init__(self, codec: BlockCodec, threads: int = 1) -> None:
        self._codec = codec
        self._threads = threads
        self._buffer = bytearray()  # what is not compressed yet
        self._packed: list[bytes] = []
        self.starts = [0]  # of each block in the compressed stream; the last is the block after those compressed

    @property
    def offset(self) -> int:
        """Where the next record will stand in the uncompressed stream."""
        return (len(self.starts) - 1) * METADATA_SIZE + len(self._buffer)

    def add(self, record: Buffer) -> int:
        """Add a record, or several in one piece; returns the place in the uncompressed stream."""
        place = self.offset
        self._buffer += record
        return place

    def append(self, record: Buffer) -> int:
        """Add a record and return its address: block start << 16 | offset."""
        self.settle()
        place = self.add(record)
        return self.find_address(place)

    def find_address(self, place: int) -> int:
        """The address of what stands at `place`, all before it being settled."""
        return self.starts[place // METADATA_SIZE] << 16 | place % METADATA_SIZE

    def find_addresses(self, places: Sequence[int]) -> array[int]:
        """Return the address of each place; a range is the places of records of one size."""
        starts = self.starts
        if not isinstance(places, range):
            return array("Q", [starts[place // METADATA_SIZE] << 16 | place % METADATA_SIZE for place in places])
        addresses: list[int] = []
        place, step = places.start, places.step
        while place < places.stop:
            block, within = divmod(place, METADATA_SIZE)
            address = starts[block] << 16 | within
            room = min(METADATA_SIZE - within, places.stop - place)
            begun = range(address, address + room, step)  # in this block; the last may end in the next one
            addresses += begun
            place += len(begun) * step
        return array("Q", addresses)

    def settle(self) -> None:
        """Compress the blocks that are full."""
        buffer = self._buffer
        end = len(buffer) - len(buffer) % METADATA_SIZE
        if end:
            with memoryview(buffer) as view:  # which no longer is when the buffer shrinks
                data = memoryview(bytes(view[:end]))
            del buffer[:end]
            self._pack([data[start : start + METADATA_SIZE] for start in range(0, end, METADATA_SIZE)])

    def close(self) -> bytes:
        """End the stream: all blocks, as they are stored. `starts` then has one entry per block and the end."""
        self.settle()
        if self._buffer:
            self._pack([bytes(self._buffer)])
            self._buffer.clear()
        return b"".join(self._packed)

    def _pack(self, blocks: Sequence[Buffer]) -> None:
        if len(blocks) < _TOGETHER:
            compressed: Sequence[Buffer] = [self._codec.compress_block(block) for block in blocks]
        else:
            compressed = self._codec.compress_blocks(blocks, self._threads)
        position = self.starts[-1]
        for block, data in zip(blocks, compressed, strict=True):
            word = size = len(data)
            if size >= len(block):
                data, size = block, len(block)
                word = size | METADATA_STORED
            self._packed += (U16.pack(word), bytes(data))
            position += 2 + size
            self.starts.append(position)


def pack_table(codec: BlockCodec, entries: Buffer, position: int, threads: int = 1) -> tuple[bytes, int]:
    """A table with an index of u64 behind its blocks, to stand at `position`; also returns where the index begins."""
    stream = MetadataWriter(codec, threads)
    stream.add(entries)
    blocks = stream.close()
    return blocks + _pack_index(stream, position), position + len(blocks)


def _pack_index(stream: MetadataWriter, position: int) -> bytes:
    return b"".join((position + start).to_bytes(8, "little") for start, _ in pairwise(stream.starts))


class _Indices(dict[int, int]):
    def __missing__(self, identifier: int) -> int:
        index = len(self)
        if index >= MAXIMUM_IDS:
            raise UnsupportedFormat(f"the image has more than {MAXIMUM_IDS} different owners, the maximum of SquashFS")
        if not 0 <= identifier < 1 << 32:
            raise UnsupportedFormat(f"owner {identifier} does not fit in 32 bits")
        self[identifier] = index
        return index


class IdTable:
    """User and group ids; inodes hold indices into it."""

    def __init__(self) -> None:
        self.indices = _Indices()  # by id, which is added if it is new

    def __len__(self) -> int:
        return len(self.indices)

    def pack(self) -> bytes:
        """The entries of the table."""
        return b"".join(U32.pack(identifier) for identifier in self.indices)


class XattrTable:
    """Sets of extended attributes, each stored once. Attributes SquashFS has no prefix for are left out and counted."""

    def __init__(self, codec: BlockCodec) -> None:
        self._codec = codec
        self._entries = MetadataWriter(codec)
        self._sets: dict[Xattrs, int] = {}
        self._ids: list[bytes] = []
        self.skipped: dict[bytes, int] = {}

    def index(self, xattrs: Xattrs) -> int:
        """The number of a set, which is added if it is new; INVALID_XATTR if nothing of it can be stored."""
        known = self._sets.get(xattrs)
        if known is None:
            known = self._sets[xattrs] = self._add(xattrs)
        if known == INVALID_XATTR or len(xattrs) > 1:
            self._count_skipped(xattrs)
        return known

    def _add(self, xattrs: Xattrs) -> int:
        record = b""
        count = 0
        for name, value in xattrs:
            number, suffix = _split_name(name)
            if number < 0:
                continue
            if not 1 <= len(suffix) <= 255 or len(value) > XATTR_VALUE_LIMIT:
                raise UnsupportedFormat(f"extended attribute {name[:80]!r} is larger than Linux allows")
            record += XATTR_ENTRY.pack(number, len(suffix)) + suffix + U32.pack(len(value)) + value
            count += 1
        if not count:
            return INVALID_XATTR
        address = self._entries.append(record)
        self._ids.append(XATTR_ID.pack(address, count, len(record)))
        return len(self._ids) - 1

    def _count_skipped(self, xattrs: Xattrs) -> None:
        for name, _ in xattrs:
            if _split_name(name)[0] < 0:
                self.skipped[name] = self.skipped.get(name, 0) + 1

    def pack(self, position: int) -> tuple[bytes, int]:
        """The whole table, to stand at `position`, and where its header begins; nothing if there are no sets."""
        if not self._ids:
            return b"", INVALID_TABLE
        entries = self._entries.close()
        ids = MetadataWriter(self._codec)
        ids.add(b"".join(self._ids))
        blocks = entries + ids.close()
        header = XATTR_TABLE.pack(position, len(self._ids), 0)
        return blocks + header + _pack_index(ids, position + len(entries)), position + len(blocks)


def _split_name(name: bytes) -> tuple[int, bytes]:
    for number, prefix in enumerate(XATTR_PREFIXES):
        if name.startswith(prefix):
            return number, name[len(prefix) :]
    return -1, name
