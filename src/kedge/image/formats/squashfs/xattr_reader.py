# SPDX-License-Identifier: BSD-3-Clause
"""Reads the extended attributes of an image."""

from __future__ import annotations

from kedge.base.tree import Xattrs
from kedge.errors import CorruptImage
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.metadata_reader import (
    ImageRange,
    IndexedTable,
    MetadataCursor,
    MetadataReader,
    corrupt,
)

TABLE = "xattr table"
_MAXIMUM_ENTRIES = 4096  # of one file; Linux's listxattr can name no more than 65536 bytes of names
_MAXIMUM_BYTES = 1 << 20  # of one file
_CACHED_SETS = 4096


class XattrReader:
    """Finds the set with a number; sets that were read lately are remembered."""

    def __init__(self, image: ImageRange, codec: BlockCodec, start: int, used: int) -> None:
        header = image.read(start, layout.XATTR_TABLE.size, TABLE)
        entries, count, _ = layout.XATTR_TABLE.unpack(header)
        if not layout.SUPERBLOCK_SIZE <= entries <= start:
            raise corrupt(TABLE, start, f"its entries begin at {entries}, outside of the image")
        self._entries = MetadataReader(image, codec, TABLE, entries, start)
        ids = MetadataReader(image, codec, TABLE, 0, used)
        self.count: int = count  # of the sets
        self._ids = IndexedTable(ids, image, start + layout.XATTR_TABLE.size, count=count, entry=layout.XATTR_ID)
        self._cache: dict[int, Xattrs] = {}

    def get(self, number: int) -> Xattrs:
        """The attributes of set `number`, sorted by name."""
        xattrs = self._cache.get(number)
        if xattrs is None:
            xattrs = self._read(number)
            if len(self._cache) >= _CACHED_SETS:
                self._cache.clear()
            self._cache[number] = xattrs
        return xattrs

    def _read(self, number: int) -> Xattrs:
        address, count, _ = self._ids.get(number, asked_by="an inode")
        cursor = MetadataCursor(self._entries, address)
        if count > _MAXIMUM_ENTRIES:
            raise corrupt(TABLE, cursor.where, f"one file with {count} extended attributes")
        total = 0
        result: list[tuple[bytes, bytes]] = []
        for _ in range(count):
            name, value = self._read_entry(cursor)
            total += len(name) + len(value)
            if total > _MAXIMUM_BYTES:
                raise corrupt(TABLE, cursor.where, f"one file with more than {_MAXIMUM_BYTES} bytes of attributes")
            result.append((name, value))
        return tuple(sorted(result))

    def _read_entry(self, cursor: MetadataCursor) -> tuple[bytes, bytes]:
        kind, size = layout.XATTR_ENTRY.unpack(cursor.take(4))
        prefix = kind & 0xFF
        if prefix >= len(layout.XATTR_PREFIXES):
            raise corrupt(TABLE, cursor.where, f"attribute prefix {prefix} is unknown")
        if not 0 < size <= 255:
            raise corrupt(TABLE, cursor.where, f"an attribute name of {size} bytes")
        name = layout.XATTR_PREFIXES[prefix] + cursor.take(size)
        value = self._read_value(cursor)
        if not kind & layout.XATTR_ELSEWHERE:
            return name, value
        if len(value) != 8:
            raise corrupt(TABLE, cursor.where, "the address of a value does not have 8 bytes")
        try:
            return name, self._read_value(MetadataCursor(self._entries, int.from_bytes(value, "little")))
        except CorruptImage as problem:
            raise corrupt(TABLE, cursor.where, f"the value of {name[:80]!r}: {problem.message}") from problem

    def _read_value(self, cursor: MetadataCursor) -> bytes:
        (size,) = layout.U32.unpack(cursor.take(4))
        if size > layout.XATTR_VALUE_LIMIT:
            raise corrupt(TABLE, cursor.where, f"an attribute value of {size} bytes")
        return cursor.take(size)
