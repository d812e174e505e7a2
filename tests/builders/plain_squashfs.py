# SPDX-License-Identifier: BSD-3-Clause
"""A SquashFS image made the plain way: one file, one inode, one name after the other, all in memory, nothing put off.

It shares the layout and the codecs with kedge's writer, and none of its ways. Both must give the same bytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from kedge.base.tree import Buffer, Node, NodeKind
from kedge.image.formats.compression.blocks import open_codec
from kedge.image.formats.squashfs import layout


@dataclass
class Place:
    """Where a content is: in a fragment, or in blocks from `start` on with these size words."""

    start: int = 0
    words: tuple[int, ...] = ()
    sparse: int = 0
    fragment: int = layout.INVALID_FRAGMENT
    offset: int = 0


class _Metadata:
    """Blocks of 8 KiB, each compressed when it is full."""

    def __init__(self, compress: object) -> None:
        self._compress = compress
        self._open = b""
        self.packed = b""
        self.starts: list[int] = []

    def add(self, record: bytes) -> int:
        """The address of the record."""
        self._settle(layout.METADATA_SIZE)
        address = len(self.packed) << 16 | len(self._open)
        self._open += record
        return address

    def find_block(self, before: int) -> int:
        """Where the block begins whose bytes follow `before` bytes."""
        self._settle(layout.METADATA_SIZE)
        block = before // layout.METADATA_SIZE
        return self.starts[block] if block < len(self.starts) else len(self.packed)

    @property
    def size(self) -> int:
        """Bytes before compression."""
        return len(self.starts) * layout.METADATA_SIZE + len(self._open)

    def close(self) -> bytes:
        self._settle(1)
        return self.packed

    def _settle(self, least: int) -> None:
        while len(self._open) >= least:
            block, self._open = self._open[: layout.METADATA_SIZE], self._open[layout.METADATA_SIZE :]
            packed = bytes(self._compress(block))  # type: ignore[operator]
            self.starts.append(len(self.packed))
            is_stored = len(packed) >= len(block)
            word = len(block) | layout.METADATA_STORED if is_stored else len(packed)
            self.packed += struct.pack("<H", word) + (block if is_stored else packed)


class PlainImage:
    """A ContentSink of the least kind; `finish` gives the image."""

    def __init__(self, codec: str, block_size: int, *, has_tails: bool = False) -> None:
        self._has_tails = has_tails  # ends of large files share fragments too, as mksquashfs can do it
        self.codec = open_codec(codec)
        self.block_size = block_size
        options = self.codec.options
        self._options = struct.pack("<H", len(options) | layout.METADATA_STORED) + options if options else b""
        self._data = bytearray(layout.SUPERBLOCK_SIZE + len(self._options))
        self._fragment = b""
        self._fragments: list[bytes] = []
        self._known: dict[tuple[int, int], tuple[bytes, Place]] = {}  # by size and checksum of the first block

    # -- contents

    def add(self, data: Buffer) -> object:
        """A content is compared with the first alone that has its size and the checksum of its first block."""
        content = bytes(data)
        if not content:
            return None
        key = len(content), zlib.crc32(content[: self.block_size])
        known = self._known.get(key)
        if known is not None and known[0] == content:
            return known[1]
        place = self._add_blocks(content) if len(content) >= self.block_size else self._add_small(content)
        self._known.setdefault(key, (content, place))
        return place

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        content = b"".join(bytes(chunk) for chunk in chunks)
        assert len(content) == size
        return self.add(content)

    def pack_block(self, block: bytes) -> tuple[int, bytes]:
        """The size word and the bytes of a block of a file."""
        if not block.strip(b"\0"):
            return 0, b""
        packed = bytes(self.codec.compress_block(block))
        return (len(packed), packed) if len(packed) < len(block) else (len(block) | layout.BLOCK_STORED, block)

    def _add_small(self, content: bytes) -> Place:
        if len(self._fragment) + len(content) > self.block_size:
            self._close_fragment()
        place = Place(fragment=len(self._fragments), offset=len(self._fragment))
        self._fragment += content
        return place

    def _close_fragment(self) -> None:
        if self._fragment:
            packed = bytes(self.codec.compress_block(self._fragment))
            is_stored = len(packed) >= len(self._fragment)
            word = len(self._fragment) | layout.BLOCK_STORED if is_stored else len(packed)
            self._fragments.append(layout.FRAGMENT_ENTRY.pack(len(self._data), word, 0))
            self._data += self._fragment if is_stored else packed
            self._fragment = b""

    def _add_blocks(self, content: bytes) -> Place:
        tail = len(content) % self.block_size if self._has_tails else 0
        place = self._add_small(content[-tail:]) if tail else Place()
        place.start = len(self._data)
        for start in range(0, len(content) - tail, self.block_size):
            block = content[start : start + self.block_size]
            word, stored = self.pack_block(block)
            place.words += (word,)
            place.sparse += 0 if word else len(block)
            self._data += stored
        return place

    # -- tables

    def finish(self, root: Node) -> bytes:
        """The image of this tree."""
        self._close_fragment()
        tables = _Tables(root, self.codec.compress_block)
        position = len(self._data)
        image = bytes(self._data) + tables.inodes.close() + tables.directories.close()
        directory_table = position + len(tables.inodes.packed)
        indices = []
        addresses = b"".join(struct.pack("<Q", tables.addresses[number + 1]) for number in range(len(tables.addresses)))
        owners = b"".join(struct.pack("<I", owner) for owner in tables.owners)
        for entries in (b"".join(self._fragments), addresses, owners):
            table = _Metadata(self.codec.compress_block)
            table.add(entries)
            blocks = table.close()
            indices.append(len(image) + len(blocks))
            image += blocks + b"".join(struct.pack("<Q", len(image) + start) for start in table.starts)
        image, xattr_table = tables.append_xattrs(image)
        flags = layout.FLAG_EXPORT | layout.FLAG_DUPLICATES | (layout.FLAG_OPTIONS if self._options else 0)
        superblock = layout.Superblock(
            *(len(tables.addresses), 0, self.block_size, len(self._fragments), self.codec.identifier),
            *(flags | (layout.FLAGS_ALL_STORED if self.codec.stores_all else 0), len(tables.owners), tables.root),
            *(len(image), indices[2], xattr_table, position, directory_table, indices[0], indices[1]),
        )
        head = superblock.pack() + self._options
        return head + image[len(head) :] + bytes(-len(image) % layout.PADDING)


class _Tables:
    """Inodes and names of a tree, from the leaves up."""

    def __init__(self, root: Node, compress: object) -> None:
        self._compress = compress
        self.inodes, self.directories, self._xattrs = _Metadata(compress), _Metadata(compress), _Metadata(compress)
        self.owners: list[int] = []
        self.addresses: dict[int, int] = {}  # by number
        self._sets: dict[object, int] = {}
        self._set_entries: list[bytes] = []
        self._numbers, self._links, self._parents = {root: 1}, {root: 1}, {root: 0}
        folders: list[Node] = []
        self._number(root, folders)
        self._parents[root] = len(self._numbers) + 1
        self._listings: dict[Node, tuple[int, int, bytes, int]] = {}
        for folder in reversed(folders):
            for _, child in sorted(folder.children.items()):
                if self._numbers[child] not in self.addresses:
                    self.addresses[self._numbers[child]] = self.inodes.add(self._pack(child))
            self._list(folder)
        self.root = self.addresses[1] = self.inodes.add(self._pack(root))

    def _number(self, folder: Node, folders: list[Node]) -> None:
        pending = [folder]
        while pending:
            folder = pending.pop()
            folders.append(folder)
            children = sorted(folder.children.items())
            for _, child in children:
                self._links[child] = self._links.get(child, 0) + 1
                self._numbers.setdefault(child, len(self._numbers) + 1)
                if child.kind is NodeKind.DIRECTORY:
                    self._parents[child] = self._numbers[folder]
            pending += [child for _, child in reversed(children) if child.kind is NodeKind.DIRECTORY]

    def _owner(self, identifier: int) -> int:
        if identifier not in self.owners:
            self.owners.append(identifier)
        return self.owners.index(identifier)

    def _xattr(self, node: Node) -> int:
        known = self._sets.get(node.xattrs)
        if known is not None:
            return known
        records = []
        for name, value in node.xattrs:
            for number, prefix in enumerate(layout.XATTR_PREFIXES):
                if name.startswith(prefix):
                    suffix = name[len(prefix) :]
                    records.append(layout.XATTR_ENTRY.pack(number, len(suffix)) + suffix)
                    records[-1] += struct.pack("<I", len(value)) + value
        if records:
            address = self._xattrs.add(b"".join(records))
            self._set_entries.append(layout.XATTR_ID.pack(address, len(records), sum(map(len, records))))
        self._sets[node.xattrs] = known = len(self._set_entries) - 1 if records else layout.INVALID_XATTR
        return known

    def append_xattrs(self, image: bytes) -> tuple[bytes, int]:
        if not self._set_entries:
            return image, layout.INVALID_TABLE
        position = len(image)
        image += self._xattrs.close()
        table = _Metadata(self._compress)
        table.add(b"".join(self._set_entries))
        blocks = table.close()
        index = b"".join(struct.pack("<Q", len(image) + start) for start in table.starts)
        header = layout.XATTR_TABLE.pack(position, len(self._set_entries), 0)
        return image + blocks + header + index, len(image) + len(blocks)

    def _pack(self, node: Node) -> bytes:
        owner = self._owner(node.uid), self._owner(node.gid)
        time = min(max(node.mtime, 0), layout.LAST_TIME)
        header = (node.mode & 0o7777, *owner, time, self._numbers[node])
        xattr = self._xattr(node) if node.xattrs else layout.INVALID_XATTR
        links, is_plain = self._links[node], xattr == layout.INVALID_XATTR
        if node.kind is NodeKind.DIRECTORY:
            return self._pack_folder(node, header, xattr)
        if node.kind is NodeKind.FILE:
            place = node.content if isinstance(node.content, Place) else Place()
            tail = b"".join(struct.pack("<I", word) for word in place.words)
            if links == 1 and is_plain and not place.sparse:
                record = (2, *header, place.start, place.fragment, place.offset, node.size)
                return layout.BASIC_FILE.pack(*record) + tail
            sparse = min(place.sparse, node.size - 1) if node.size else 0
            record = (9, *header, place.start, node.size, sparse, links, place.fragment, place.offset, xattr)
            return layout.EXTENDED_FILE.pack(*record) + tail
        kind, tail = (int(node.kind), b"") if is_plain else (int(node.kind) + 7, struct.pack("<I", xattr))
        if node.kind is NodeKind.SYMLINK:
            return layout.SYMLINK.pack(kind, *header, links, len(node.target)) + node.target + tail
        if node.kind in (NodeKind.FIFO, NodeKind.SOCKET):
            return layout.IPC.pack(kind, *header, links) + tail
        device = layout.encode_device(node.rdev, os.major(node.rdev), os.minor(node.rdev))
        return layout.DEVICE.pack(kind, *header, links, device) + tail

    def _pack_folder(self, node: Node, header: tuple[int, ...], xattr: int) -> bytes:
        address, size, index, count = self._listings[node]
        links = 2 + sum(child.kind is NodeKind.DIRECTORY for child in node.children.values())
        start, offset, parent = address >> 16, address & 0xFFFF, self._parents[node]
        if xattr == layout.INVALID_XATTR and not count and size <= 0xFFFF:
            return layout.BASIC_DIRECTORY.pack(1, *header, start, links, size, offset, parent)
        return layout.EXTENDED_DIRECTORY.pack(8, *header, links, size, start, parent, count, offset, xattr) + index

    def _list(self, folder: Node) -> None:
        """A new header where inodes are in another block, after 256 names, and where the index has an entry."""
        runs: list[list[bytes]] = []
        index: list[tuple[int, bytes]] = []
        heads: list[tuple[int, int]] = []
        size = indexed = 0
        for name, child in sorted(folder.children.items()):
            number = self._numbers[child]
            address = self.addresses[number]
            is_near = bool(heads) and address >> 16 == heads[-1][0] and -32768 <= number - heads[-1][1] <= 32767
            has_room = size - indexed + 8 + len(name) <= layout.METADATA_SIZE
            if not is_near or not has_room or len(runs[-1]) == layout.DIRECTORY_RUN:
                if size + 20 + len(name) - indexed > layout.METADATA_SIZE:
                    index.append((size, name))
                    indexed = size
                heads.append((address >> 16, number))
                runs.append([])
                size += layout.DIRECTORY_HEADER.size
            words = (address & 0xFFFF, number - heads[-1][1], child.kind, len(name) - 1)
            runs[-1].append(layout.DIRECTORY_ENTRY.pack(*words) + name)
            size += 8 + len(name)
        place = self.directories.size
        listing = b"".join(
            layout.DIRECTORY_HEADER.pack(len(run) - 1, *head) + b"".join(run)
            for head, run in zip(heads, runs, strict=True)
        )
        address = self.directories.add(listing)
        packed = b"".join(
            layout.DIRECTORY_INDEX.pack(offset, self.directories.find_block(place + offset), len(name) - 1) + name
            for offset, name in index
        )
        self._listings[folder] = address, size + layout.EMPTY_DIRECTORY_SIZE, packed, len(index)
