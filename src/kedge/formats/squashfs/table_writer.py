# SPDX-License-Identifier: BSD-3-Clause
"""Tables of an image being written: metadata blocks, the id table, the xattr table, and tables with an index."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from kedge.errors import UnsupportedFormat
from kedge.formats.compression import BlockCodec
from kedge.formats.squashfs.layout import (
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
from kedge.model.tree import Buffer, Xattrs


class MetadataWriter:
    """A stream of records cut into compressed blocks of 8 KiB; addresses are known as soon as a record is appended."""

    def __init__(self, codec: BlockCodec) -> None:
        self._codec = codec
        self._buffer = bytearray()
        self._packed: list[bytes] = []
        self.starts = [0]  # of each block in the compressed stream; the last is the block being filled

    @property
    def address(self) -> int:
        """Where the next record will stand: block start << 16 | offset."""
        return self.starts[-1] << 16 | len(self._buffer)

    @property
    def offset(self) -> int:
        """Where the next record will stand in the uncompressed stream."""
        return (len(self.starts) - 1) * METADATA_SIZE + len(self._buffer)

    def append(self, record: Buffer) -> int:
        """Add a record and return its address."""
        buffer = self._buffer
        address = self.starts[-1] << 16 | len(buffer)
        buffer += record
        if len(buffer) >= METADATA_SIZE:
            self._pack_whole()
        return address

    def _pack_whole(self) -> None:
        """Compress the blocks that are full."""
        data = bytes(self._buffer)
        end = len(data) - len(data) % METADATA_SIZE
        for start in range(0, end, METADATA_SIZE):
            self._pack(data[start : start + METADATA_SIZE])
        del self._buffer[:end]

    def extend(self, records: Sequence[Buffer]) -> array[int]:
        """Add records and return their addresses; as `append` for each, in one go."""
        places = list(accumulate(map(len, records), initial=self.offset))
        self.append(b"".join(records))
        starts = self.starts
        return array("Q", [starts[place // METADATA_SIZE] << 16 | place % METADATA_SIZE for place in places[:-1]])

    def extend_equal(self, records: bytes, size: int) -> array[int]:
        """Add records of `size` bytes each, given in one piece, and return their addresses."""
        place = self.offset
        end = place + len(records)
        self.append(records)
        addresses = array("Q")
        while place < end:
            block, within = divmod(place, METADATA_SIZE)
            room = min(METADATA_SIZE - within, end - place)
            address = self.starts[block] << 16 | within
            begun = range(address, address + room, size)  # in this block; the last may end in the next one
            addresses += array("Q", list(begun))
            place += len(begun) * size
        return addresses

    def close(self) -> bytes:
        """End the stream: all blocks, as they are stored. `starts` then has one entry per block and the end."""
        if self._buffer:
            self._pack(bytes(self._buffer))
            self._buffer.clear()
        return b"".join(self._packed)

    def _pack(self, block: bytes) -> None:
        data = self._codec.compress_block(block)
        word = len(data)
        if word >= len(block):
            data, word = block, len(block) | METADATA_STORED
        self._packed += (U16.pack(word), bytes(data))
        self.starts.append(self.starts[-1] + 2 + len(data))


def pack_table(codec: BlockCodec, entries: Buffer, position: int) -> tuple[bytes, int]:
    """A table with an index of u64 behind its blocks, to stand at `position`; also returns where the index begins."""
    stream = MetadataWriter(codec)
    stream.append(entries)
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
        ids.append(b"".join(self._ids))
        blocks = entries + ids.close()
        header = XATTR_TABLE.pack(position, len(self._ids), 0)
        return blocks + header + _pack_index(ids, position + len(entries)), position + len(blocks)


def _split_name(name: bytes) -> tuple[int, bytes]:
    for number, prefix in enumerate(XATTR_PREFIXES):
        if name.startswith(prefix):
            return number, name[len(prefix) :]
    return -1, name
