# SPDX-License-Identifier: BSD-3-Clause
"""Parses inodes and directory listings of an image; every field that is an offset, size or count is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from kedge.base.tree import NodeKind
from kedge.errors import HostileImage
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.layout import INODE_HEADER, INVALID_XATTR, U32
from kedge.image.formats.squashfs.metadata_reader import MetadataCursor, MetadataReader, corrupt

_NO_NAMES = frozenset((b".", b".."))
_LAST_KIND = int(NodeKind.SOCKET)
_FILE = int(NodeKind.FILE)  # members of an enumeration are slow to compare
_PLAIN = layout.BASIC_FILE
_LARGEST_FILE = 1 << 44  # 16 TiB, as ext4; holes cost an attacker nothing


class Inode(NamedTuple):
    """One inode; what a kind does not have is 0. `blocks` is the address of a file's block list."""

    kind: int
    mode: int
    uid: int  # index into the id table
    gid: int
    mtime: int
    links: int = 1
    xattr: int = INVALID_XATTR
    size: int = 0  # of a file; of a directory's listing
    start: int = 0  # first block of a file; address of a directory's listing
    fragment: int = layout.INVALID_FRAGMENT
    offset: int = 0
    blocks: int = 0
    device: int = 0
    target: bytes = b""


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: bytes
    kind: int
    address: int


class FileContent(NamedTuple):
    """Token of a regular file in a tree that was read: where its blocks, block list and fragment are."""

    start: int
    blocks: int
    fragment: int
    offset: int


PlainInode = tuple[int, int, int, int, int, FileContent | None]  # mode, uid and gid as indices, mtime, size, content


class InodeReader:
    """Reads inodes by address."""

    def __init__(self, table: MetadataReader, block_size: int) -> None:
        self._table = table
        self._block_size = block_size
        # No list can be longer than the table would be if every block were as short as blocks can be.
        self._largest_list = (table.end - table.start) // 3 * layout.METADATA_SIZE
        self._parsers = {
            1: self._directory,
            2: self._file,
            3: self._symlink,
            4: self._device,
            5: self._device,
            6: self._ipc,
            7: self._ipc,
            8: self._extended_directory,
            9: self._extended_file,
            10: self._symlink,
            11: self._device,
            12: self._device,
            13: self._ipc,
            14: self._ipc,
        }

    def read(self, address: int) -> Inode:
        """The inode at an address."""
        cursor = MetadataCursor(self._table, address)
        head = cursor.take(INODE_HEADER.size)
        kind, mode, uid, gid, mtime, _ = INODE_HEADER.unpack(head)
        parse = self._parsers.get(kind)
        if parse is None:
            raise corrupt(self._table.name, cursor.where, f"inode type {kind} is unknown")
        basic = kind - layout.EXTENDED if kind > layout.EXTENDED else kind
        return parse(cursor, head, Inode(basic, mode & 0o7777, uid, gid, mtime))

    def read_plain(self, address: int) -> PlainInode | None:
        """A basic file whose inode stands whole in its block, as nearly all do; None for anything else.

        With one name, without attributes. What is wrong with an inode `read` says.
        """
        block, _ = self._table.block(address >> 16)
        offset = address & 0xFFFF
        if offset + _PLAIN.size > len(block):
            return None
        kind, mode, uid, gid, mtime, _, start, fragment, place, size = _PLAIN.unpack_from(block, offset)
        if kind != _FILE or size // self._block_size * 4 > self._largest_list:
            return None
        content = FileContent(start, address + _PLAIN.size, fragment, place) if size else None
        return mode & 0o7777, uid, gid, mtime, size, content

    def _directory(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.BASIC_DIRECTORY
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        block, links, size, offset, _ = fields[6:]
        return self._with_listing(cursor, common._replace(links=links), size, block << 16 | offset)

    def _extended_directory(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.EXTENDED_DIRECTORY
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        links, size, block, _, _, offset, xattr = fields[6:]
        return self._with_listing(cursor, common._replace(links=links, xattr=xattr), size, block << 16 | offset)

    def _with_listing(self, cursor: MetadataCursor, inode: Inode, size: int, address: int) -> Inode:
        if address & 0xFFFF >= layout.METADATA_SIZE:
            raise corrupt(self._table.name, cursor.where, f"directory offset {address & 0xFFFF} is outside of a block")
        # Some writers give an empty directory the size 0 instead of 3.
        return inode._replace(size=max(size - layout.EMPTY_DIRECTORY_SIZE, 0), start=address)

    def _file(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.BASIC_FILE
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        start, fragment, offset, size = fields[6:]
        inode = common._replace(size=size, start=start, fragment=fragment, offset=offset, blocks=cursor.address)
        return self._check_file(cursor, inode)

    def _extended_file(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.EXTENDED_FILE
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        start, size, _, links, fragment, offset, xattr = fields[6:]
        inode = common._replace(links=links, xattr=xattr, start=start, fragment=fragment, offset=offset, size=size)
        return self._check_file(cursor, inode._replace(blocks=cursor.address))

    def _check_file(self, cursor: MetadataCursor, inode: Inode) -> Inode:
        if inode.size > _LARGEST_FILE:
            raise HostileImage(
                f"SquashFS inode table at offset {cursor.where}: a file claims {inode.size} bytes",
                context={"table": self._table.name, "offset": str(cursor.where), "field": "file_size"},
                hint="no file of an image is that large; do not use this image",
            )
        if inode.size // self._block_size * 4 > self._largest_list:
            raise corrupt(self._table.name, cursor.where, f"no block list for {inode.size} bytes fits in the table")
        return inode

    def _symlink(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.SYMLINK
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        links, size = fields[6:]
        if size > 0xFFFF:
            raise corrupt(self._table.name, cursor.where, f"a symbolic link of {size} bytes")
        target = cursor.take(size)
        return common._replace(links=links, target=target, xattr=_take_xattr(cursor, fields[0]))

    def _device(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.DEVICE
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        links, word = fields[6:]
        device = os.makedev(*layout.decode_device(word))
        return common._replace(links=links, device=device, xattr=_take_xattr(cursor, fields[0]))

    def _ipc(self, cursor: MetadataCursor, head: bytes, common: Inode) -> Inode:
        record = layout.IPC
        fields = record.unpack(head + cursor.take(record.size - len(head)))
        return common._replace(links=fields[6], xattr=_take_xattr(cursor, fields[0]))


def _take_xattr(cursor: MetadataCursor, kind: int) -> int:
    if kind <= layout.EXTENDED:
        return INVALID_XATTR
    (xattr,) = U32.unpack(cursor.take(4))
    return int(xattr)


def read_entries(table: MetadataReader, inode: Inode) -> Iterator[DirectoryEntry]:
    """The entries of a directory, in the order they are stored."""
    remaining = inode.size
    if not remaining:
        return
    cursor = MetadataCursor(table, inode.start)
    take, unpack = cursor.take, layout.DIRECTORY_ENTRY.unpack
    while remaining > 0:
        count, block, _ = layout.DIRECTORY_HEADER.unpack(take(12))
        remaining -= 12
        if count >= layout.DIRECTORY_RUN:
            raise corrupt(table.name, cursor.where, f"a directory header announces {count + 1} entries")
        block <<= 16
        for _ in range(count + 1):
            offset, _, kind, length = unpack(take(8))
            if length >= 256:
                raise corrupt(table.name, cursor.where, f"a name of {length + 1} bytes")
            name = take(length + 1)
            remaining -= 9 + length
            if remaining < 0:
                raise corrupt(table.name, cursor.where, "a directory's entries do not fit in its size")
            if b"/" in name or b"\0" in name or name in _NO_NAMES:
                raise _hostile_name(table, cursor, name)
            if not 1 <= kind <= _LAST_KIND:
                raise corrupt(table.name, cursor.where, f"{name[:80]!r} has the unknown type {kind}")
            yield DirectoryEntry(name, kind, block | offset)


def _hostile_name(table: MetadataReader, cursor: MetadataCursor, name: bytes) -> HostileImage:
    return HostileImage(
        f"SquashFS {table.name} at offset {cursor.where}: {name[:80]!r} is not a valid file name",
        context={"table": table.name, "offset": str(cursor.where), "field": "name"},
        hint="this image was made to break programs that unpack it; do not use it",
    )
