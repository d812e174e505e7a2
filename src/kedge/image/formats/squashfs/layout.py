# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS 4.0 on disk (https://dr-emann.github.io/squashfs/): all little endian, offsets from the superblock.

    superblock 96 | compressor options | data and fragment blocks | inode table | directory table
    | fragment table | export table | id table | xattr table | padding to 4096

Tables are metadata blocks: a u16 (size, bit 15: stored) and up to 8192 bytes. Inodes and directories are addressed by
(offset of the metadata block in its table) << 16 | (offset within the block); the other tables have an index of u64.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = 0x73717368  # "hsqs"
SUPERBLOCK = struct.Struct("<IIIIIHHHHHHQQQQQQQQ")
SUPERBLOCK_SIZE = 96
METADATA_SIZE = 8192
METADATA_STORED = 0x8000
BLOCK_STORED = 1 << 24  # in the size word of a data or fragment block
BLOCK_SIZE_MASK = BLOCK_STORED - 1
MINIMUM_BLOCK, MAXIMUM_BLOCK = 4096, 1 << 20
PADDING = 4096
INVALID_TABLE = 0xFFFFFFFFFFFFFFFF
INVALID_FRAGMENT = 0xFFFFFFFF
INVALID_XATTR = 0xFFFFFFFF
LAST_TIME = 0xFFFFFFFF  # seconds; there are no others, and none before 0

_FLAG_INODES_STORED = 0x0001
_FLAG_DATA_STORED = 0x0002
_FLAG_FRAGMENTS_STORED = 0x0008
FLAG_DUPLICATES = 0x0040  # duplicates were looked for
FLAG_EXPORT = 0x0080
_FLAG_XATTRS_STORED = 0x0100
FLAG_OPTIONS = 0x0400
_FLAG_IDS_STORED = 0x0800
FLAGS_ALL_STORED = (
    _FLAG_INODES_STORED | _FLAG_DATA_STORED | _FLAG_FRAGMENTS_STORED | _FLAG_XATTRS_STORED | _FLAG_IDS_STORED
)

# Inodes begin with: type, permissions, uid index, gid index, mtime, number. Types 1-7 are basic, +7 extended.
EXTENDED = 7
INODE_HEADER = struct.Struct("<HHHHII")
BASIC_DIRECTORY = struct.Struct("<HHHHIIIIHHI")  # block, links, size + 3, offset, parent
EXTENDED_DIRECTORY = struct.Struct("<HHHHIIIIIIHHI")  # links, size + 3, block, parent, index count, offset, xattr
BASIC_FILE = struct.Struct("<HHHHIIIIII")  # start, fragment, offset in fragment, size; then u32 block sizes
EXTENDED_FILE = struct.Struct("<HHHHIIQQQIIII")  # start, size, sparse, links, fragment, offset, xattr; block sizes
SYMLINK = struct.Struct("<HHHHIIII")  # links, target size; then the target, and if extended a u32 xattr
DEVICE = struct.Struct("<HHHHIIII")  # links, device; if extended a u32 xattr
IPC = struct.Struct("<HHHHIII")  # links; if extended a u32 xattr
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

DIRECTORY_HEADER = struct.Struct("<III")  # entries - 1, inode metadata block, inode number
DIRECTORY_ENTRY = struct.Struct("<HhHH")  # inode offset, inode number - the header's, type, name size - 1; the name
DIRECTORY_INDEX = struct.Struct("<III")  # offset in the listing, metadata block, name size - 1; then the name
DIRECTORY_RUN = 256  # entries under one header
EMPTY_DIRECTORY_SIZE = 3  # sizes count "." and ".." as three bytes
MAXIMUM_INDEX = 65535  # entries in the index of one directory: enough for half a gigabyte of names
NAME_LIMIT = 255
TARGET_LIMIT = 4095

FRAGMENT_ENTRY = struct.Struct("<QII")  # start, size word, unused
XATTR_ENTRY = struct.Struct("<HH")  # prefix (bit 8: the value stands elsewhere), name size; then the name
XATTR_ID = struct.Struct("<QII")  # address of the first entry, entries, bytes
XATTR_TABLE = struct.Struct("<QII")  # start of the entries, sets, unused; then the index
XATTR_ELSEWHERE = 0x0100
XATTR_PREFIXES = (b"user.", b"trusted.", b"security.")  # the index is the number on disk
XATTR_VALUE_LIMIT = 65536  # the kernel's XATTR_SIZE_MAX
MAXIMUM_IDS = 65535


@dataclass(frozen=True, slots=True)
class Superblock:
    """The first 96 bytes, field by field in their order on disk."""

    inodes: int
    mtime: int
    block_size: int
    fragments: int
    compressor: int
    flags: int
    ids: int
    root: int
    used: int
    id_table: int
    xattr_table: int
    inode_table: int
    directory_table: int
    fragment_table: int
    export_table: int

    def pack(self) -> bytes:
        """The superblock as it is written, version 4.0."""
        log = self.block_size.bit_length() - 1
        return SUPERBLOCK.pack(
            *(MAGIC, self.inodes, self.mtime, self.block_size, self.fragments, self.compressor, log, self.flags),
            *(self.ids, 4, 0, self.root, self.used, self.id_table, self.xattr_table, self.inode_table),
            *(self.directory_table, self.fragment_table, self.export_table),
        )


def encode_device(device: int, major: int, minor: int) -> int:
    """The 32-bit device number of the kernel (new_encode_dev); `device` is only named in the error."""
    if major > 0xFFF or minor > 0xFFFFF:
        raise OverflowError(f"device number {device} does not fit in 32 bits")
    return (minor & 0xFF) | major << 8 | (minor & 0xFFF00) << 12


def decode_device(word: int) -> tuple[int, int]:
    """Major and minor number of a device as stored."""
    return (word >> 8) & 0xFFF, (word & 0xFF) | (word >> 12) & 0xFFF00
