# SPDX-License-Identifier: BSD-3-Clause
"""Reading of an image's parts with every offset checked: the file itself, metadata blocks, tables with an index.

Nothing is allocated on an image's word: sizes are compared with the file or with fixed limits first.
"""

from __future__ import annotations

import io
import os
import struct
import threading
from typing import BinaryIO

from kedge.errors import CorruptImage
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs.layout import METADATA_SIZE, METADATA_STORED

_CACHED_BLOCKS = 256  # metadata blocks, 2 MiB


def corrupt(table: str, offset: int, message: str) -> CorruptImage:
    """The error for damage at an offset of the image."""
    return CorruptImage(
        f"SquashFS {table} at offset {offset}: {message}",
        context={"table": table, "offset": str(offset)},
        hint="the image is damaged or was cut short; make or fetch it again",
    )


class ImageRange:
    """A range of a file; safe for several threads."""

    def __init__(self, file: BinaryIO, offset: int, size: int | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._offset = offset
        try:
            self._descriptor = file.fileno()
        except (OSError, io.UnsupportedOperation):
            self._descriptor = -1
        available = max(file.seek(0, os.SEEK_END) - offset, 0)
        if size is not None and size > available:
            raise corrupt("image", available, f"the file ends here, {size} bytes were expected")
        self.size = available if size is None else size

    def read(self, position: int, size: int, what: str) -> bytes:
        """Exactly `size` bytes, or `CorruptImage` naming `what`."""
        if position < 0 or size < 0 or position + size > self.size:
            raise corrupt(what, position, f"{size} bytes lie outside of the image's {self.size}")
        if self._descriptor >= 0:
            data = os.pread(self._descriptor, size, self._offset + position)
        else:
            with self._lock:
                self._file.seek(self._offset + position)
                data = self._file.read(size)
        if len(data) != size:
            raise corrupt(what, position, "the file was truncated while kedge read it")
        return data


class MetadataReader:
    """One table of metadata blocks between two offsets of the image."""

    def __init__(self, image: ImageRange, codec: BlockCodec, name: str, start: int, end: int) -> None:
        self._image = image
        self._codec = codec
        self._cache: dict[int, tuple[bytes, int]] = {}
        self.name = name
        self.start = start
        self.end = end

    def block(self, position: int) -> tuple[bytes, int]:
        """The block at an offset from the table's start, decompressed, and the offset of the next one."""
        block = self._cache.get(position)
        if block is None:
            block = self._read_block(position)
            if len(self._cache) >= _CACHED_BLOCKS:
                del self._cache[next(iter(self._cache))]
            self._cache[position] = block
        return block

    def _read_block(self, position: int) -> tuple[bytes, int]:
        where = self.start + position
        if position < 0 or where + 2 > self.end:
            raise corrupt(self.name, where, f"lies outside of the table, which ends at {self.end}")
        word = int.from_bytes(self._image.read(where, 2, self.name), "little")
        size = word & ~METADATA_STORED
        if not 0 < size <= METADATA_SIZE or where + 2 + size > self.end:
            raise corrupt(self.name, where, f"a metadata block cannot have {size} bytes here")
        data = self._image.read(where + 2, size, self.name)
        if not word & METADATA_STORED:
            try:
                data = self._codec.decompress_block(data, METADATA_SIZE)
            except CorruptImage as problem:
                raise corrupt(self.name, where, problem.message) from problem
            if not data:
                raise corrupt(self.name, where, "the metadata block is empty")
        return data, position + 2 + size


class MetadataCursor:
    """Reads records one after the other, across blocks, from an address (block offset << 16 | offset within)."""

    __slots__ = ("_block", "_next", "_offset", "_start", "_table")

    def __init__(self, table: MetadataReader, address: int) -> None:
        self._table = table
        self._start = address >> 16
        self._block, self._next = table.block(self._start)
        self._offset = address & 0xFFFF
        if self._offset > len(self._block):
            raise corrupt(table.name, table.start + self._start, f"offset {self._offset} is outside of the block")

    @property
    def address(self) -> int:
        """Where the next record stands."""
        return self._start << 16 | self._offset

    @property
    def where(self) -> int:
        """Offset in the image of the current block, for errors."""
        return self._table.start + self._start

    def take(self, size: int) -> bytes:
        """The next `size` bytes; callers keep `size` within limits of their own."""
        end = self._offset + size
        data = self._block[self._offset : end]
        if end <= len(self._block):
            self._offset = end
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            self._start = self._next
            self._block, self._next = self._table.block(self._start)
            parts.append(self._block[:missing])
            self._offset = len(parts[-1])
            missing -= self._offset
        return b"".join(parts)


class IndexedTable:
    """A table of equal entries in metadata blocks that are found through an index of u64."""

    def __init__(
        self, metadata: MetadataReader, image: ImageRange, index: int, *, count: int, entry: struct.Struct
    ) -> None:
        self._metadata = metadata
        self._entry = entry
        self._per_block = METADATA_SIZE // entry.size
        self.count = count
        blocks = -(-count // self._per_block)
        self._index = struct.unpack(f"<{blocks}Q", self._read_index(image, index, blocks * 8))

    def _read_index(self, image: ImageRange, index: int, size: int) -> bytes:
        if index + size > self._metadata.end:
            raise corrupt(self._metadata.name, index, f"an index for {self.count} entries does not fit in the image")
        return image.read(index, size, self._metadata.name)

    def get(self, number: int, *, asked_by: str) -> tuple[int, ...]:
        """Entry `number`; `asked_by` says who refers to it if there is none."""
        name = self._metadata.name
        if not 0 <= number < self.count:
            raise corrupt(name, 0, f"{asked_by} refers to entry {number} of {self.count}")
        where = self._index[number // self._per_block]
        data, _ = self._metadata.block(where - self._metadata.start)
        offset = number % self._per_block * self._entry.size
        if offset + self._entry.size > len(data):
            raise corrupt(name, where, f"the block ends before entry {number}")
        return self._entry.unpack_from(data, offset)
