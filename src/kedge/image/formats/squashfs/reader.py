# SPDX-License-Identifier: BSD-3-Clause
"""Reads untrusted SquashFS 4.0 images: strict, lazy, in bounded memory.

Damage is `CorruptImage`, what only an attacker writes is `HostileImage`; both name the table and the offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from types import TracebackType
from typing import BinaryIO, Self

from kedge.base.frozen import list_names
from kedge.base.tree import Node, NodeKind
from kedge.errors import HostileImage, UnsupportedFormat
from kedge.image.formats.compression.blocks import codec_of_image
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.block_reader import BlockPlace, BlockReader
from kedge.image.formats.squashfs.inode_reader import (
    DirectoryEntry,
    FileContent,
    Inode,
    InodeReader,
    PlainInode,
    read_entries,
)
from kedge.image.formats.squashfs.layout import INVALID_FRAGMENT, INVALID_TABLE, INVALID_XATTR, Superblock
from kedge.image.formats.squashfs.metadata_reader import (
    ImageRange,
    IndexedTable,
    MetadataCursor,
    MetadataReader,
    corrupt,
)
from kedge.image.formats.squashfs.xattr_reader import XattrReader

_MAXIMUM_NAMES = 4_000_000
MAXIMUM_DEPTH = 2048  # PATH_MAX is 4096: nothing deeper can be named
_WORDS_AT_ONCE = 2048
_FILE = int(NodeKind.FILE)
_KINDS = {kind.value: kind for kind in NodeKind}  # calling an enumeration is slow


class SquashReader:
    """An image in a file, from `offset` on. A `ContentSource` for the trees it reads. The caller closes the file.

    `threads` above 1 decompress ahead while `chunks` is consumed; `close` ends them.
    """

    def __init__(self, file: BinaryIO, offset: int = 0, size: int | None = None, *, threads: int = 1) -> None:
        image = ImageRange(file, offset, size)
        self.superblock = superblock = read_superblock(image)
        codec = codec_of_image(superblock.compressor)
        self._image, self._codec = image, codec
        inodes = self._table("inode table", superblock.inode_table, superblock.directory_table)
        self._directories = self._table("directory table", superblock.directory_table, superblock.used)
        self._inode_table = inodes
        self._inodes = InodeReader(inodes, superblock.block_size)
        self._ids = self._indexed("id table", superblock.id_table, superblock.ids, layout.U32)
        self._owners: dict[int, int] = {}
        self._fragments: IndexedTable | None = None
        self._blocks = BlockReader(image, codec, superblock.block_size, threads)
        self._xattrs: XattrReader | None = None
        if superblock.xattr_table != INVALID_TABLE:
            self._xattrs = XattrReader(image, codec, superblock.xattr_table, superblock.used)

    def close(self) -> None:
        """End the threads; the file stays open."""
        self._blocks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_tree(self) -> Node:
        """The whole tree; names of one inode that has several are one `Node`."""
        root_inode = self._read_root()
        root = self._node(root_inode)
        links: dict[int, Node] = {}
        seen = {self.superblock.root}
        names = 0
        stack = [(root, root_inode, 0)]
        while stack:
            directory, inode, depth = stack.pop()
            children = directory.children
            for entry in read_entries(self._directories, inode):
                names += 1
                self._check_growth(names, depth, entry, directory)
                if entry.kind == _FILE and (plain := self._inodes.read_plain(entry.address)):
                    children[entry.name] = self._make_file(plain)
                    continue
                child = links.get(entry.address)
                if child is None:
                    child_inode = self._read_entry(entry)
                    child = self._node(child_inode)
                    if entry.kind == 1:
                        self._check_directory(entry, seen)
                        stack.append((child, child_inode, depth + 1))
                    elif child_inode.links > 1:
                        links[entry.address] = child
                elif child.kind != entry.kind:
                    raise self._type_mismatch(entry)
                children[entry.name] = child
        return root

    def find(self, path: bytes | str) -> Node | None:
        """The node at a path, links not followed, reading only what lies on the way; None if there is none.

        A directory comes with its direct children, and these without theirs.
        """
        inode = self._read_root()
        wanted = path.encode() if isinstance(path, str) else path
        for part in wanted.split(b"/"):
            if part in (b"", b"."):
                continue
            if inode.kind != 1:
                return None
            for entry in read_entries(self._directories, inode):
                if entry.name == part:
                    inode = self._read_entry(entry)
                    break
            else:
                return None
        node = self._node(inode)
        if inode.kind == 1:
            for number, entry in enumerate(read_entries(self._directories, inode)):
                self._check_growth(number, 0, entry, node)
                node.children[entry.name] = self._node(self._read_entry(entry))
        return node

    def find_path(self, address: int) -> bytes | None:
        """The first path of the inode at an address, without a leading slash; None if no listing has it."""
        root = self._read_root()
        if address == self.superblock.root:
            return b""
        seen = {self.superblock.root}
        stack = [(b"", root)]
        while stack:
            path, inode = stack.pop()
            for entry in read_entries(self._directories, inode):
                if entry.address == address:
                    return path + entry.name
                if entry.kind == 1:
                    self._check_directory(entry, seen)
                    stack.append((path + entry.name + b"/", self._read_entry(entry)))
        return None

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The content of a regular file of this image, in pieces of at most a block."""
        content = node.content
        if content is None:
            return
        if not isinstance(content, FileContent):
            raise TypeError(f"this content is not of a SquashFS image that was read: {content!r}")
        block_size = self.superblock.block_size
        has_tail = content.fragment != INVALID_FRAGMENT
        count, tail = divmod(node.size, block_size)
        if tail and not has_tail:
            count += 1
        if count:
            yield from self._blocks.stream(self._places(content, node.size, count))
        if tail and has_tail:
            yield self._read_tail(content, tail)

    def stretch(self, node: Node, start: int, length: int) -> Iterator[bytes]:
        """The content of a regular file from `start`, a multiple of the block size, on."""
        content = node.content
        if not isinstance(content, FileContent):
            raise TypeError(f"this content is not of a SquashFS image that was read: {content!r}")
        block_size = self.superblock.block_size
        whole, tail = divmod(node.size, block_size)
        has_tail = bool(tail) and content.fragment != INVALID_FRAGMENT
        count = whole + bool(tail and not has_tail)
        first, last = start // block_size, -(-(start + length) // block_size)
        yield from self._blocks.stream(islice(self._places(content, node.size, count), first, last))
        if has_tail and start + length == node.size:
            yield self._read_tail(content, tail)

    def _places(self, content: FileContent, size: int, count: int) -> Iterator[BlockPlace]:
        cursor = MetadataCursor(self._inode_table, content.blocks)
        block_size = self.superblock.block_size
        position = content.start
        while count:
            step = min(count, _WORDS_AT_ONCE)
            for word in struct.unpack(f"<{step}I", cursor.take(4 * step)):
                length = min(block_size, size)
                stored = self._blocks.check_word(word, position, "data block")
                yield BlockPlace(position, word, length)
                position += stored
                size -= length
            count -= step

    def _read_tail(self, content: FileContent, tail: int) -> bytes:
        superblock = self.superblock
        if self._fragments is None:
            table, count = superblock.fragment_table, superblock.fragments
            self._fragments = self._indexed("fragment table", table, count, layout.FRAGMENT_ENTRY)
        block = self._blocks.fragment(self._fragments, content.fragment, asked_by="a file")
        end = content.offset + tail
        if end > len(block):
            raise corrupt("fragment block", 0, f"fragment {content.fragment} ends before byte {end}")
        return block[content.offset : end]

    def _table(self, name: str, start: int, end: int) -> MetadataReader:
        return MetadataReader(self._image, self._codec, name, start, end)

    def _indexed(self, name: str, index: int, count: int, entry: struct.Struct) -> IndexedTable:
        return IndexedTable(self._table(name, 0, self.superblock.used), self._image, index, count=count, entry=entry)

    def _read_root(self) -> Inode:
        inode = self._inodes.read(self.superblock.root)
        if inode.kind != 1:
            raise corrupt("superblock", 32, "the root is no directory")
        return inode

    def _read_entry(self, entry: DirectoryEntry) -> Inode:
        inode = self._inodes.read(entry.address)
        if inode.kind != entry.kind:
            raise self._type_mismatch(entry)
        return inode

    def _type_mismatch(self, entry: DirectoryEntry) -> Exception:
        where = self._inode_table.start + (entry.address >> 16)
        return corrupt("directory table", where, f"{entry.name[:80]!r} and its inode differ in type")

    def _check_growth(self, names: int, depth: int, entry: DirectoryEntry, directory: Node) -> None:
        if names > _MAXIMUM_NAMES or depth > MAXIMUM_DEPTH:
            limit = f"{_MAXIMUM_NAMES} names" if names > _MAXIMUM_NAMES else f"{MAXIMUM_DEPTH} levels of directories"
            raise HostileImage(f"the SquashFS image has more than {limit}", hint="do not use this image")
        if entry.name in directory.children:
            raise HostileImage(f"{entry.name[:80]!r} occurs twice in one directory", hint="do not use this image")

    def _check_directory(self, entry: DirectoryEntry, seen: set[int]) -> None:
        if entry.address in seen:
            raise HostileImage(
                f"directory {entry.name[:80]!r} has several parents",
                context={"table": "directory table", "offset": str(entry.address >> 16)},
                hint="this image was made to break programs that unpack it; do not use it",
            )
        seen.add(entry.address)

    def _owner(self, number: int) -> int:
        owner = self._owners.get(number)
        if owner is None:
            owner = self._owners[number] = self._ids.get(number, asked_by="an inode")[0]
        return owner

    def _make_file(self, plain: PlainInode) -> Node:
        mode, uid, gid, mtime, size, content = plain
        node = Node(NodeKind.FILE, mode, self._owner(uid), self._owner(gid), mtime)
        node.size, node.content = size, content
        return node

    def _node(self, inode: Inode) -> Node:
        kind = _KINDS[inode.kind]
        node = Node(kind, inode.mode, self._owner(inode.uid), self._owner(inode.gid), inode.mtime)
        if inode.xattr != INVALID_XATTR and self._xattrs is not None:
            node.xattrs = self._xattrs.get(inode.xattr)
        if kind is NodeKind.FILE:
            node.size = inode.size
            if inode.size:
                node.content = FileContent(inode.start, inode.blocks, inode.fragment, inode.offset)
        elif kind is NodeKind.SYMLINK:
            node.target = inode.target
        else:
            node.rdev = inode.device
        return node


def read_superblock(image: ImageRange) -> Superblock:
    """The superblock, every field of it plausible."""
    fields = layout.SUPERBLOCK.unpack(image.read(0, layout.SUPERBLOCK_SIZE, "superblock"))
    magic, inodes, mtime, block_size, fragments, compressor, log, flags, ids, major, minor = fields[:11]
    if magic != layout.MAGIC:
        raise UnsupportedFormat("not a SquashFS image: it does not start with 'hsqs'")
    if (major, minor) != (4, 0):
        raise UnsupportedFormat(
            f"SquashFS version {major}.{minor} is not supported",
            hint="kedge reads version 4.0 (Linux 2.6.29 and newer)",
        )
    is_power = block_size & (block_size - 1) == 0
    if (
        not layout.MINIMUM_BLOCK <= block_size <= layout.MAXIMUM_BLOCK
        or not is_power
        or block_size != 1 << min(log, 32)
    ):
        raise corrupt("superblock", 12, f"block size {block_size} with logarithm {log}")
    superblock = Superblock(
        inodes=inodes,
        mtime=mtime,
        block_size=block_size,
        fragments=fragments,
        compressor=compressor,
        flags=flags,
        ids=ids,
        **dict(zip(list_names(Superblock)[7:], fields[11:], strict=True)),
    )
    _check_places(superblock, image.size)
    return superblock


def _check_places(superblock: Superblock, size: int) -> None:
    used = superblock.used
    if not layout.SUPERBLOCK_SIZE < used <= size:
        raise corrupt("superblock", 40, f"the image should have {used} bytes and has {size}")
    places = [("inode table", superblock.inode_table), ("directory table", superblock.directory_table)]
    places.append(("id table", superblock.id_table))
    if superblock.fragments:
        places.append(("fragment table", superblock.fragment_table))
    if superblock.xattr_table != INVALID_TABLE:
        places.append(("xattr table", superblock.xattr_table))
    for name, place in places:
        if not layout.SUPERBLOCK_SIZE <= place <= used:
            raise corrupt("superblock", 48, f"the {name} cannot begin at {place} in an image of {used} bytes")
    if superblock.inode_table >= superblock.directory_table:
        raise corrupt("superblock", 64, "the inode table does not stand before the directory table")
    if not superblock.inodes or not superblock.ids:
        raise corrupt("superblock", 4, f"{superblock.inodes} inodes and {superblock.ids} owners")
