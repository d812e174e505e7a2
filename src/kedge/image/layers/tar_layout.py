# SPDX-License-Identifier: BSD-3-Clause
"""The tar header: field places, type flags and number encodings shared by reader and writer.

    0 name 100 | 100 mode 8 | 108 uid 8 | 116 gid 8 | 124 size 12 | 136 mtime 12 | 148 checksum 8 | 156 type 1
    157 linkname 100 | 257 magic 6, version 2 | 265 uname 32 | 297 gname 32 | 329 major 8 | 337 minor 8 | 345 prefix 155
Old GNU: magic "ustar  "; in place of prefix: 386 four sparse pairs of 12+12, 482 extended flag, 483 real size 12.
Specification: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

from __future__ import annotations

import struct

from kedge.base.tree import NodeKind
from kedge.image.formats.compression.blocks import adler32

BLOCK = 512
REMEMBERED = 16384  # fields of numbers
ZERO_BLOCK = bytes(BLOCK)
POSIX_MAGIC = b"ustar\0"
HEADER = struct.Struct("100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12x")

TYPE_HARD_LINK = ord("1")
TYPE_SPARSE = ord("S")
TYPE_GNU_LONG_NAME = ord("L")
TYPE_GNU_LONG_LINK = ord("K")
TYPE_PAX_GLOBAL = ord("g")
EXTENSION_TYPES = frozenset(b"xXgLK")  # X is what Solaris wrote before POSIX chose x
NODE_TYPES = {
    ord("0"): NodeKind.FILE,
    0: NodeKind.FILE,
    ord("7"): NodeKind.FILE,
    ord("S"): NodeKind.FILE,
    ord("2"): NodeKind.SYMLINK,
    ord("3"): NodeKind.CHARACTER_DEVICE,
    ord("4"): NodeKind.BLOCK_DEVICE,
    ord("5"): NodeKind.DIRECTORY,
    ord("6"): NodeKind.FIFO,
}
REFUSED_TYPES = {
    ord("D"): "a GNU incremental dump directory",
    ord("M"): "the continuation of a multi-volume archive",
    ord("V"): "a volume label",
    ord("N"): "an old GNU long-name list",
}


def parse_number(field: bytes) -> int:
    """Octal text, or base 256 when the first bit is set; raises ValueError for anything else."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        if field[0] & 0x40:
            return value - (1 << bits)  # two's complement: the marker bit is the sign
        return value & ((1 << (bits - 1)) - 1)
    text = field.strip(b" \0")
    if not text.isdigit():
        text = cut_string(text).rstrip(b" ")  # some writers leave garbage behind the NUL
    if text.isdigit():
        return int(text, 8)
    if text:
        raise ValueError(f"{text!r} is not an octal number")
    return 0


class KnownNumbers(dict[bytes, int]):
    """Fields of numbers, parsed when first met: few texts make up most of a layer. Raises as `parse_number` does."""

    def __missing__(self, field: bytes) -> int:
        value = parse_number(field)
        if len(self) < REMEMBERED:
            self[field] = value
        return value


class KnownSums(dict[bytes, int]):
    """By the field of a header's checksum, what all its bytes add up to: a checksum counts its own field as spaces.

    Raises ValueError for a field that holds no number but zero.
    """

    def __missing__(self, field: bytes) -> int:
        claimed = parse_number(field)
        if not claimed:
            raise ValueError("no checksum")
        value = claimed - 8 * 0x20 + sum(field)
        if len(self) < REMEMBERED:
            self[field] = value
        return value


def cut_string(field: bytes) -> bytes:
    """A field's text up to the first NUL."""
    return field.partition(b"\0")[0]


def sum_bytes(block: bytes) -> int:
    """The sum of a block's bytes.

    The lower half of Adler-32 is one more than the sum modulo 65521, which 512 bytes of ASCII do not reach: then it is
    the sum, at a tenth of what adding in Python costs.
    """
    return (adler32(block) & 0xFFFF) - 1 if block.isascii() else sum(block)


def sum_header(header: bytes) -> tuple[int, int]:
    """The checksum as unsigned bytes (the standard) and as signed ones (what some old systems wrote)."""
    counted = header[:148] + b"        " + header[156:]
    unsigned = sum(counted)
    return unsigned, unsigned - 256 * sum(byte > 127 for byte in counted)


def is_header(block: bytes) -> bool:
    """Whether a block can be the header of a member: its checksum fits."""
    try:
        expected = parse_number(block[148:156])
    except ValueError:
        return False
    return expected > 0 and expected in sum_header(block)
