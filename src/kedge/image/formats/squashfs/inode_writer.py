# SPDX-License-Identifier: BSD-3-Clause
"""Inode and directory table from a tree.

Inodes are numbered from the root down, the children of a directory in a row, and stored from the leaves up, because a
directory's listing holds the addresses of its children. There may be millions: what is done per file is done for all
children of a directory at once, and for small files by columns (`small_files`). Blocks of the tables are compressed
many at once: where a directory has no others in it, nobody needs its children's addresses before the next are stored.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from kedge.base.tree import Node, NodeKind
from kedge.errors import HostileImage, UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.content_writer import (
    SIZE,
    FileBlocks,
    find_others,
    pack_all_small,
    pack_small,
    split_token,
)
from kedge.image.formats.squashfs.layout import (
    DIRECTORY_ENTRY,
    DIRECTORY_HEADER,
    DIRECTORY_RUN,
    INVALID_XATTR,
    LAST_TIME,
    U32,
)
from kedge.image.formats.squashfs.table_writer import IdTable, MetadataWriter, XattrTable

_TOGETHER = 1 << 15  # files whose inodes are compressed together, about
_FILE = bytes((NodeKind.FILE,))
_MOSTLY = 4  # one node in so many may be no small file for columns to be worth it


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Where the blocks of files are: parallel arrays by block number."""

    positions: array[int]
    sizes: array[int]
    block_size: int


class _Folder:
    """A directory of the tree on its way into the tables."""

    __slots__ = ("first", "has_files_only", "has_folders", "has_links", "listing", "node", "number", "parent", "row")

    def __init__(self, node: Node, parent: _Folder | None) -> None:
        self.node = node
        self.parent = parent
        self.has_files_only = False
        self.has_folders = False
        self.has_links = False  # names of files that have others, too
        self.number = 1  # of its own inode
        self.first = 0  # of its first child that no earlier directory has
        self.row: _Row | None = None  # from when its children are placed until they are listed
        self.listing: Listing | None = None  # from then on until it is placed itself


@dataclass(slots=True)
class _Row:
    """The children of a directory in byte order of their names, with the places of their inodes."""

    names: list[bytes]
    nodes: list[Node]
    numbers: Sequence[int]
    places: list[Sequence[int]]  # one after the other; a range where inodes are of one size


class TreeTables:
    """Builds both tables; `ids` and `xattrs` are filled on the way, `addresses` holds each inode's by number - 1."""

    def __init__(self, root: Node, codec: BlockCodec, blocks: BlockMap, threads: int = 1) -> None:
        self.ids = IdTable()
        self.xattrs = XattrTable(codec)
        self.inodes = MetadataWriter(codec, threads)
        self.directories = MetadataWriter(codec, threads)
        self._blocks = blocks
        self._folders: dict[Node, _Folder] = {}  # parents first
        self._links: dict[Node, int] = {}  # how many names, of nodes with more than one
        self._numbers: dict[Node, int] = {}  # theirs
        self._list_folders(root)
        self._places: dict[int, int] = {}  # by number, likewise
        self.addresses = array("Q", [0]) * self._number_nodes()
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
        """Store everything; many directories without others in them together. Returns the address of the root."""
        waiting: list[_Folder] = []
        files = 0
        for folder in reversed(self._folders.values()):
            if folder.has_folders or files > _TOGETHER:
                self._list_children(waiting)
                waiting, files = [], 0
            self._place_children(folder)
            waiting.append(folder)
            files += len(folder.node.children)
        self._list_children(waiting)
        self.addresses[0] = address = self.inodes.append(self._pack(root, 1))
        return address

    def _place_children(self, folder: _Folder) -> None:
        """Store the inodes of the children."""
        children, first = folder.node.children, folder.first
        names = sorted(children)
        is_sorted = names == list(children)  # as many tars are, and then no name has to be looked up
        nodes = list(children.values()) if is_sorted else [children[name] for name in names]
        if folder.has_links:
            numbers, places = self._place_linked(nodes, first)
            folder.row = _Row(names, nodes, numbers, [places])
        else:
            folder.row = _Row(names, nodes, range(first, first + len(nodes)), self._place_row(nodes, first))

    def _place_row(self, nodes: list[Node], number: int) -> list[Sequence[int]]:
        """Store inodes of nodes with one name each, numbered from `number` on; returns their places."""
        records = pack_all_small(nodes, number, self.ids.indices) if nodes else b""
        if records:
            return [self._add_equal(records)]
        others = find_others(nodes)
        if len(others) * _MOSTLY > len(nodes):
            return [[self.inodes.add(self._pack(node, place)) for place, node in enumerate(nodes, number)]]
        places: list[Sequence[int]] = []
        start = 0
        for place in (*others, len(nodes)):
            if start < place:
                places.append(self._add_equal(pack_small(nodes[start:place], number + start, self.ids.indices)))
            if place < len(nodes):
                places.append([self.inodes.add(self._pack(nodes[place], number + place))])
            start = place + 1
        return places

    def _add_equal(self, records: bytes) -> range:
        place = self.inodes.add(records)
        return range(place, place + len(records), SIZE)

    def _place_linked(self, nodes: list[Node], following: int) -> tuple[list[int], list[int]]:
        """Store inodes of which some have other names and may be stored already; returns numbers and places."""
        numbers: list[int] = []
        places: list[int] = []
        for node in nodes:
            number = self._numbers.get(node, following)
            following += number == following
            place = self._places.get(number)
            if place is None:
                place = self.inodes.add(self._pack(node, number))
                if node in self._links:
                    self._places[number] = place
            numbers.append(number)
            places.append(place)
        return numbers, places

    def _list_children(self, folders: list[_Folder]) -> None:
        """Store the listings of directories whose children are placed."""
        self.inodes.settle()
        for folder in folders:
            row, folder.row = folder.row, None
            assert row is not None
            addresses = array("Q")
            for places in row.places:
                addresses += self.inodes.find_addresses(places)
            self._note_addresses(row.numbers, addresses)
            kinds = _FILE * len(row.nodes) if folder.has_files_only else bytes([node.kind for node in row.nodes])
            writer = ListingWriter()
            writer.add(Children(row.names, addresses, row.numbers, kinds))
            folder.listing = writer.store(self.directories, kinds.count(NodeKind.DIRECTORY))
        self.directories.settle()

    def _note_addresses(self, numbers: Sequence[int], addresses: array[int]) -> None:
        if isinstance(numbers, range):
            self.addresses[numbers.start - 1 : numbers.stop - 1] = addresses
            return
        for number, address in zip(numbers, addresses, strict=True):
            self.addresses[number - 1] = address

    def _pack(self, node: Node, number: int) -> bytes:
        """The inode of any node."""
        ids, mtime = self.ids.indices, min(max(node.mtime, 0), LAST_TIME)
        header = (node.mode & 0o7777, ids[node.uid], ids[node.gid], mtime, number)
        xattr = self.xattrs.index(node.xattrs) if node.xattrs else INVALID_XATTR
        if node.kind is NodeKind.DIRECTORY:
            return self._pack_directory(header, self._folders[node], xattr)
        if node.kind is NodeKind.FILE:
            return self._pack_file(header, node, xattr)
        return _pack_special(header, node, self._links.get(node, 1), xattr)

    def _pack_directory(self, header: tuple[int, ...], folder: _Folder, xattr: int) -> bytes:
        """A directory whose children are listed; the root has a parent whose number no inode has."""
        listing, folder.listing = folder.listing, None
        assert listing is not None
        parent = folder.parent.number if folder.parent is not None else len(self.addresses) + 1
        address = self.directories.find_address(listing.place)
        block, offset = address >> 16, address & 0xFFFF
        links, size = 2 + listing.subdirectories, listing.size + layout.EMPTY_DIRECTORY_SIZE
        if xattr == INVALID_XATTR and not listing.index and size <= 0xFFFF:
            return layout.BASIC_DIRECTORY.pack(1, *header, block, links, size, offset, parent)
        extended = (links, size, block, parent, len(listing.index), offset, xattr)
        return layout.EXTENDED_DIRECTORY.pack(8, *header, *extended) + listing.pack_index(self.directories)

    def _pack_file(self, header: tuple[int, ...], node: Node, xattr: int) -> bytes:
        content = node.content
        blocks = b""
        start, sparse, fragment, offset = 0, 0, layout.INVALID_FRAGMENT, 0
        if isinstance(content, int):
            fragment, offset = split_token(content)
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


# The listing of one directory: runs of entries, each run under a header with what its entries share.
#
# A run ends after 256 entries, where the inodes are in another block, and where the index gets an entry. That is found
# for many names at once, because there may be millions.

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
