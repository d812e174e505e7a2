# SPDX-License-Identifier: BSD-3-Clause
"""Inode and directory table from a tree.

Inodes are numbered from the root down, the children of a directory in a row, and stored from the leaves up, because a
directory's listing holds the addresses of its children. Runs once per file: what is done here per file is kept short.
"""

from __future__ import annotations

import os
import sys
from array import array
from dataclasses import dataclass

from kedge.errors import HostileImage, UnsupportedFormat
from kedge.formats.compression import BlockCodec
from kedge.formats.squashfs import layout
from kedge.formats.squashfs.content_writer import OFFSET_BITS, FileBlocks
from kedge.formats.squashfs.layout import DIRECTORY_ENTRY, DIRECTORY_HEADER, DIRECTORY_RUN, INVALID_XATTR, U32
from kedge.formats.squashfs.table_writer import IdTable, MetadataWriter, XattrTable
from kedge.model.tree import Node, NodeKind

_UNPLACED = 0xFFFFFFFFFFFFFFFF
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Where the blocks of files are: parallel arrays by block number."""

    positions: array[int]
    sizes: array[int]
    block_size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory's listing in the directory table; `index` holds packed entries that help find names in long ones."""

    address: int
    size: int
    index_count: int
    index: bytes
    subdirectories: int


class TreeTables:
    """Builds both tables; `ids` and `xattrs` are filled on the way, `addresses` holds each inode's by number - 1."""

    def __init__(self, root: Node, codec: BlockCodec, blocks: BlockMap) -> None:
        self.ids = IdTable()
        self.xattrs = XattrTable(codec)
        self.inodes = MetadataWriter(codec)
        self.directories = MetadataWriter(codec)
        self._blocks = blocks
        self._numbers: dict[Node, int] = {}
        self._links: dict[Node, int] = {}  # of nodes with more than one name
        self._order: list[tuple[Node, Node | None]] = []  # directories with their parents, parents first
        self._number_nodes(root)
        self.addresses = array("Q", [_UNPLACED]) * len(self._numbers)
        self.root = self._place_all(root)

    def _number_nodes(self, root: Node) -> None:
        numbers, links = self._numbers, self._links
        numbers[root] = 1
        stack: list[tuple[Node, Node | None]] = [(root, None)]
        while stack:
            directory, parent = stack.pop()
            self._order.append((directory, parent))
            below: list[tuple[Node, Node | None]] = []
            for name, child in directory.sorted_children():
                if child not in numbers:
                    numbers[child] = len(numbers) + 1
                    if child.kind == 1:
                        below.append((child, directory))
                elif child.kind == 1:
                    raise HostileImage(f"directory {name[:80]!r} is in the tree twice")
                else:
                    links[child] = links.get(child, 1) + 1
            stack += reversed(below)

    def _place_all(self, root: Node) -> int:
        listings: dict[Node, Listing] = {}
        parents = dict(self._order)
        while self._order:
            directory, _ = self._order.pop()
            listings[directory] = self._place_directory(directory, parents, listings)
        return self._place(root, listings.pop(root), len(self._numbers) + 1)

    def _place_directory(
        self, directory: Node, parents: dict[Node, Node | None], listings: dict[Node, Listing]
    ) -> Listing:
        """Store the inodes of the children, then the listing that points at them."""
        numbers, addresses, links = self._numbers, self.addresses, self._links
        number_of_directory = numbers[directory]
        writer = _ListingWriter()
        subdirectories = 0
        for name, child in directory.sorted_children():
            number = numbers[child]
            address = _UNPLACED
            if child.kind == 1:
                subdirectories += 1
                address = self._place(child, listings.pop(child), number_of_directory)
                del parents[child]
            elif child in links:
                address = addresses[number - 1]
            if address == _UNPLACED:
                address = self._place(child, None, 0)
            writer.add(name, address, number, child.kind)
        return writer.store(self.directories, subdirectories)

    def _place(self, node: Node, listing: Listing | None, parent: int) -> int:
        """Store one inode and return its address."""
        number = self._numbers[node]
        mtime = node.mtime
        if not 0 <= mtime <= 0xFFFFFFFF:
            mtime = 0 if mtime < 0 else 0xFFFFFFFF  # SquashFS has no other times
        header = (node.mode & 0o7777, self.ids.index(node.uid), self.ids.index(node.gid), mtime, number)
        xattr = self.xattrs.index(node.xattrs) if node.xattrs else INVALID_XATTR
        if listing is not None:
            record = _pack_directory(header, listing, parent, xattr)
        elif node.kind == 2:
            record = self._pack_file(header, node, xattr)
        else:
            record = _pack_special(header, node, self._links.get(node, 1), xattr)
        address = self.inodes.append(record)
        self.addresses[number - 1] = address
        return address

    def _pack_file(self, header: tuple[int, ...], node: Node, xattr: int) -> bytes:
        content = node.content
        blocks = b""
        start, sparse, fragment, offset = 0, 0, layout.INVALID_FRAGMENT, 0
        if isinstance(content, int):
            fragment, offset = content >> OFFSET_BITS, content & _OFFSET_MASK
        elif isinstance(content, FileBlocks):
            start, sparse, blocks = self._block_list(node, content)
        elif node.size:
            raise ValueError(f"a file of {node.size} bytes has no content in this image")
        links = self._links.get(node, 1)
        if links == 1 and xattr == INVALID_XATTR and not sparse and start <= 0xFFFFFFFF and node.size <= 0xFFFFFFFF:
            return layout.BASIC_FILE.pack(2, *header, start, fragment, offset, node.size) + blocks
        return layout.EXTENDED_FILE.pack(9, *header, start, node.size, sparse, links, fragment, offset, xattr) + blocks

    def _block_list(self, node: Node, content: FileBlocks) -> tuple[int, int, bytes]:
        if content.count != -(-node.size // self._blocks.block_size):
            raise ValueError(f"a file of {node.size} bytes has {content.count} blocks")
        sizes = self._blocks.sizes[content.first : content.first + content.count]
        if sys.byteorder == "big":
            sizes.byteswap()
        # sparse is subtracted from the size for st_blocks; a file of holes only must not come out negative
        return self._blocks.positions[content.first], min(content.sparse, node.size - 1), sizes.tobytes()


def _pack_directory(header: tuple[int, ...], listing: Listing, parent: int, xattr: int) -> bytes:
    block, offset = listing.address >> 16, listing.address & 0xFFFF
    links, size = 2 + listing.subdirectories, listing.size + layout.EMPTY_DIRECTORY_SIZE
    if xattr == INVALID_XATTR and not listing.index_count and size <= 0xFFFF:
        return layout.BASIC_DIRECTORY.pack(1, *header, block, links, size, offset, parent)
    extended = (links, size, block, parent, listing.index_count, offset, xattr)
    return layout.EXTENDED_DIRECTORY.pack(8, *header, *extended) + listing.index


def _pack_special(header: tuple[int, ...], node: Node, links: int, xattr: int) -> bytes:
    """A symbolic link, device, pipe or socket."""
    kind = int(node.kind)
    tail = b""
    if xattr != INVALID_XATTR:
        kind += layout.EXTENDED
        tail = U32.pack(xattr)
    if node.kind is NodeKind.SYMLINK:
        target = node.target
        if len(target) > layout.TARGET_LIMIT:
            raise UnsupportedFormat(f"the target of a symbolic link has {len(target)} bytes: {target[:80]!r}...")
        return layout.SYMLINK.pack(kind, *header, links, len(target)) + target + tail
    if node.kind in (NodeKind.FIFO, NodeKind.SOCKET):
        return layout.IPC.pack(kind, *header, links) + tail
    try:
        device = layout.encode_device(node.rdev, os.major(node.rdev), os.minor(node.rdev))
    except OverflowError as problem:
        raise UnsupportedFormat(f"a device file cannot be stored: {problem}") from problem
    return layout.DEVICE.pack(kind, *header, links, device) + tail


class _ListingWriter:
    """The listing of one directory: runs of entries, each run under a header with what its entries share."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._run: list[bytes] = []
        self._count = 0
        self._base = 0  # inode number of the run
        self._block = -1  # inode metadata block of the run
        self._size = 0
        self._index: list[tuple[int, bytes]] = []
        self._indexed = 0  # offset of the last run that has an index entry

    def add(self, name: bytes, address: int, number: int, kind: int) -> None:
        """Add an entry; names come in byte order."""
        block = address >> 16
        length = len(name)
        if not 0 < length <= layout.NAME_LIMIT or b"/" in name or b"\0" in name or name in (b".", b".."):
            raise HostileImage(f"{name[:80]!r} cannot be the name of a file")
        delta = number - self._base
        if (
            block != self._block
            or self._count == DIRECTORY_RUN
            or not -32768 <= delta <= 32767
            or self._size + 8 + length - self._indexed > layout.METADATA_SIZE
        ):
            self._begin_run(block, number, name)
            delta = 0
        self._count += 1
        self._size += 8 + length
        self._run += (DIRECTORY_ENTRY.pack(address & 0xFFFF, delta, kind, length - 1), name)

    def _begin_run(self, block: int, number: int, name: bytes) -> None:
        self._end_run()
        if self._size + 20 + len(name) - self._indexed > layout.METADATA_SIZE:
            self._index.append((self._size, name))
            self._indexed = self._size
        self._block, self._base = block, number
        self._size += DIRECTORY_HEADER.size

    def _end_run(self) -> None:
        if self._count:
            self._parts.append(DIRECTORY_HEADER.pack(self._count - 1, self._block, self._base))
            self._parts += self._run
            self._run, self._count = [], 0

    def store(self, table: MetadataWriter, subdirectories: int) -> Listing:
        """Append the listing to the directory table."""
        self._end_run()
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
