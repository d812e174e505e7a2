# SPDX-License-Identifier: BSD-3-Clause
"""Inode and directory table from a tree.

Inodes are numbered from the root down, the children of a directory in a row, and stored from the leaves up, because a
directory's listing holds the addresses of its children. There may be millions: what is done per file is done for all
children of a directory at once, and for small files by columns (`small_files`).
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from kedge.errors import HostileImage, UnsupportedFormat
from kedge.formats.compression import BlockCodec
from kedge.formats.squashfs import layout, small_files
from kedge.formats.squashfs.content_writer import FileBlocks
from kedge.formats.squashfs.layout import INVALID_XATTR, LAST_TIME, U32
from kedge.formats.squashfs.listing_writer import Children, Listing, ListingWriter
from kedge.formats.squashfs.table_writer import IdTable, MetadataWriter, XattrTable
from kedge.model.tree import Node, NodeKind

_UNPLACED = 0xFFFFFFFFFFFFFFFF
_MOSTLY = 4  # one node in so many may be no small file for columns to be worth it


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Where the blocks of files are: parallel arrays by block number."""

    positions: array[int]
    sizes: array[int]
    block_size: int


class _Folder:
    """A directory of the tree on its way into the tables."""

    __slots__ = ("first", "has_files_only", "has_folders", "has_links", "listing", "node", "number", "parent")

    def __init__(self, node: Node, parent: _Folder | None) -> None:
        self.node = node
        self.parent = parent
        self.has_files_only = False
        self.has_folders = False
        self.has_links = False  # names of files that have others, too
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
            if seen.isdisjoint(children.values()):
                before = len(seen)
                seen.update(children.values())
                if len(seen) - before < len(children):
                    self._count_names(folder.node, set())
            else:
                self._count_names(folder.node, seen)
            kinds = [child.kind for child in children.values()]
            folder.has_files_only = kinds.count(NodeKind.FILE) == len(kinds)
            if not folder.has_files_only:
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
            folder.has_links = bool(links) and not links.keys().isdisjoint(children.values())
            if not folder.has_folders and not folder.has_links:
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
        is_sorted = names == list(children)  # as many tars are, and then no name has to be looked up
        nodes = list(children.values()) if is_sorted else [children[name] for name in names]
        numbers: Sequence[int] = range(first, first + len(nodes))
        if folder.has_links:
            numbers, addresses = self._place_linked(nodes, first)
        else:
            addresses = self._place_row(nodes, first)
            self.addresses[first - 1 : first - 1 + len(nodes)] = addresses
        subdirectories = sum(node.kind is NodeKind.DIRECTORY for node in nodes) if folder.has_folders else 0
        writer = ListingWriter()
        kinds = b"\2" * len(nodes) if folder.has_files_only else bytes([node.kind for node in nodes])
        writer.add(Children(names, addresses, numbers, kinds))
        return writer.store(self.directories, subdirectories)

    def _place_row(self, nodes: list[Node], number: int) -> array[int]:
        """Store inodes of nodes with one name each, numbered from `number` on; returns their addresses."""
        records = small_files.pack_all_small(nodes, number, self.ids.indices) if nodes else b""
        if records:
            return self.inodes.extend_equal(records, small_files.SIZE)
        others = small_files.find_others(nodes)
        if len(others) * _MOSTLY > len(nodes):
            return self.inodes.extend([self._pack(node, place) for place, node in enumerate(nodes, number)])
        addresses = array("Q")
        start = 0
        for place in (*others, len(nodes)):
            if start < place:
                records = small_files.pack_small(nodes[start:place], number + start, self.ids.indices)
                addresses += self.inodes.extend_equal(records, small_files.SIZE)
            if place < len(nodes):
                addresses.append(self.inodes.append(self._pack(nodes[place], number + place)))
            start = place + 1
        return addresses

    def _place_linked(self, nodes: list[Node], following: int) -> tuple[list[int], array[int]]:
        """Store inodes of which some have other names and may be stored already; returns numbers and addresses."""
        numbers: list[int] = []
        for node in nodes:
            number = self._numbers.get(node, following)
            following += number == following
            numbers.append(number)
            if self.addresses[number - 1] == _UNPLACED:
                self.addresses[number - 1] = self.inodes.append(self._pack(node, number))
        return numbers, array("Q", [self.addresses[number - 1] for number in numbers])

    def _pack(self, node: Node, number: int) -> bytes:
        """The inode of any node."""
        ids, mtime = self.ids.indices, min(max(node.mtime, 0), LAST_TIME)
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
            fragment, offset = small_files.split_token(content)
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
