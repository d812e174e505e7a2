# SPDX-License-Identifier: BSD-3-Clause
"""Inode and directory table from a tree.

Inodes are numbered from the root down, the children of a directory in a row, and stored from the leaves up, because a
directory's listing holds the addresses of its children. Runs once per file: what is done here per file is kept short.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Sequence
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
_LAST_TIME = 0xFFFFFFFF  # SquashFS has no others, and none before 0
_NO_NAMES = frozenset((b"", b".", b".."))


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


class _Folder:
    """A directory of the tree on its way into the tables."""

    __slots__ = ("first", "has_folders", "listing", "node", "number", "parent")

    def __init__(self, node: Node, parent: _Folder | None) -> None:
        self.node = node
        self.parent = parent
        self.has_folders = False
        self.number = 1  # of its own inode
        self.first = 0  # of its first child that no earlier directory has
        self.listing: Listing | None = None  # when its children are placed, until it is placed itself


class TreeTables:
    """Builds both tables; `ids` and `xattrs` are filled on the way, `addresses` holds each inode's by number - 1."""

    def __init__(self, root: Node, codec: BlockCodec, blocks: BlockMap) -> None:
        self.ids = IdTable()
        self.xattrs = XattrTable(codec)
        self.inodes = MetadataWriter(codec)
        self.directories = MetadataWriter(codec)
        self._blocks = blocks
        self._folders: dict[Node, _Folder] = {}  # parents first
        self._links: dict[Node, int] = {}  # how many names, of nodes with more than one
        self._numbers: dict[Node, int] = {}  # theirs
        self._list_folders(root)
        self.addresses = array("Q", [_UNPLACED]) * self._number_nodes()
        self.root = self._place_all(root)

    def _list_folders(self, root: Node) -> None:
        """Find all directories, and what has several names."""
        seen: set[Node] = {root}
        stack = [_Folder(root, None)]
        while stack:
            folder = stack.pop()
            children = folder.node.children
            self._folders[folder.node] = folder
            nodes = set(children.values())
            if len(nodes) == len(children) and seen.isdisjoint(nodes):
                seen |= nodes
            else:
                self._count_names(folder.node, seen)
            below = [(name, child) for name, child in children.items() if child.kind is NodeKind.DIRECTORY]
            folder.has_folders = bool(below)
            stack += [_Folder(child, folder) for _, child in sorted(below, reverse=True)]

    def _count_names(self, directory: Node, seen: set[Node]) -> None:
        for name, child in directory.sorted_children():
            if child not in seen:
                seen.add(child)
            elif child.kind is NodeKind.DIRECTORY:
                raise HostileImage(f"directory {name[:80]!r} is in the tree twice")
            else:
                self._links[child] = self._links.get(child, 1) + 1

    def _number_nodes(self) -> int:
        """Number everything; returns how many inodes there are."""
        links, numbers, following = self._links, self._numbers, 2
        for folder in self._folders.values():
            folder.first = following
            children = folder.node.children
            if not folder.has_folders and links.keys().isdisjoint(children.values()):
                following += len(children)  # the numbers of these are needed nowhere else
                continue
            for _, child in folder.node.sorted_children():
                if child.kind is NodeKind.DIRECTORY:
                    self._folders[child].number = following
                elif child in links and numbers.setdefault(child, following) != following:
                    continue
                following += 1
        return following - 1

    def _place_all(self, root: Node) -> int:
        for folder in reversed(self._folders.values()):
            folder.listing = self._place_children(folder)
        self.addresses[0] = address = self.inodes.append(self._pack(root, 1))
        return address

    def _place_children(self, folder: _Folder) -> Listing:
        """Store the inodes of the children, then the listing that points at them."""
        children, first = folder.node.children, folder.first
        names = sorted(children)
        nodes = [children[name] for name in names]
        numbers: Sequence[int] = range(first, first + len(nodes))
        if self._links.keys().isdisjoint(nodes):
            addresses = self.inodes.extend(self._pack_all(nodes, first))
            self.addresses[first - 1 : first - 1 + len(nodes)] = array("Q", addresses)
        else:
            numbers, addresses = self._place_linked(nodes, first)
        subdirectories = sum(node.kind is NodeKind.DIRECTORY for node in nodes) if folder.has_folders else 0
        writer = _ListingWriter()
        writer.add(names, addresses, numbers, [node.kind for node in nodes])
        return writer.store(self.directories, subdirectories)

    def _place_linked(self, nodes: list[Node], following: int) -> tuple[list[int], list[int]]:
        """Store inodes of which some have other names and may be stored already; returns numbers and addresses."""
        numbers: list[int] = []
        for node in nodes:
            number = self._numbers.get(node, following)
            following += number == following
            numbers.append(number)
            if self.addresses[number - 1] == _UNPLACED:
                self.addresses[number - 1] = self.inodes.append(self._pack(node, number))
        return numbers, [self.addresses[number - 1] for number in numbers]

    def _pack_all(self, nodes: list[Node], number: int) -> list[bytes]:
        """Inodes of nodes with one name each, numbered from `number` on; most are small files, packed right here."""
        pack, ids, records = layout.BASIC_FILE.pack, self.ids.indices, []
        for node in nodes:
            content, mtime = node.content, node.mtime
            if type(content) is int and not node.xattrs and 0 <= mtime <= _LAST_TIME:
                mode, uid, gid = node.mode & 0o7777, ids[node.uid], ids[node.gid]
                fragment, offset = content >> OFFSET_BITS, content & _OFFSET_MASK
                records.append(pack(2, mode, uid, gid, mtime, number, 0, fragment, offset, node.size))
            else:
                records.append(self._pack(node, number))
            number += 1
        return records

    def _pack(self, node: Node, number: int) -> bytes:
        """The inode of any node."""
        ids, mtime = self.ids.indices, min(max(node.mtime, 0), _LAST_TIME)
        header = (node.mode & 0o7777, ids[node.uid], ids[node.gid], mtime, number)
        xattr = self.xattrs.index(node.xattrs) if node.xattrs else INVALID_XATTR
        if node.kind is NodeKind.DIRECTORY:
            return _pack_directory(header, self._folders[node], len(self.addresses) + 1, xattr)
        if node.kind is NodeKind.FILE:
            return self._pack_file(header, node, xattr)
        return _pack_special(header, node, self._links.get(node, 1), xattr)

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


def _pack_directory(header: tuple[int, ...], folder: _Folder, above_root: int, xattr: int) -> bytes:
    """A directory whose children are placed; the root has a parent whose number no inode has."""
    listing, folder.listing = folder.listing, None
    assert listing is not None
    parent = folder.parent.number if folder.parent is not None else above_root
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
        self._base = 0  # inode number of the run
        self._block = -1  # inode metadata block of the run
        self._size = 0
        self._index: list[tuple[int, bytes]] = []
        self._indexed = 0  # offset of the last run that has an index entry

    def add(
        self, names: Sequence[bytes], addresses: Sequence[int], numbers: Sequence[int], kinds: Sequence[int]
    ) -> None:
        """Add entries; names come in byte order."""
        _refuse_names(names)
        pack = DIRECTORY_ENTRY.pack
        left, room, base, run = 0, 0, 0, self._run  # entries and bytes until another run begins
        for name, address, number, kind in zip(names, addresses, numbers, kinds, strict=True):
            length = len(name)
            delta = number - base
            if not left or room < 8 + length or address >> 16 != self._block or not -32768 <= delta <= 32767:
                self._begin_run(address >> 16, number, name)
                left, room = DIRECTORY_RUN, layout.METADATA_SIZE - self._size + self._indexed
                base, delta, run = number, 0, self._run
            left -= 1
            room -= 8 + length
            run += (pack(address & 0xFFFF, delta, kind, length - 1), name)

    def _begin_run(self, block: int, number: int, name: bytes) -> None:
        self._end_run()
        if self._size + 20 + len(name) - self._indexed > layout.METADATA_SIZE:
            self._index.append((self._size, name))
            self._indexed = self._size
        self._block, self._base = block, number
        self._size += DIRECTORY_HEADER.size

    def _end_run(self) -> None:
        if self._run:
            self._parts.append(DIRECTORY_HEADER.pack(len(self._run) // 2 - 1, self._block, self._base))
            self._parts += self._run
            self._size += sum(map(len, self._run))
            self._run = []

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
