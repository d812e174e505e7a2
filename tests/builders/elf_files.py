# SPDX-License-Identifier: BSD-3-Clause
"""Small ELF files: a shared object with the name, the needs, the search path and the versions that a test wants."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_HEADER, _PROGRAM_HEADER = 64, 56
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RUNPATH, _VERNEED, _VERNEEDNUM = 1, 5, 10, 14, 29, 0x6FFFFFFE, 0x6FFFFFFF


def make_library(
    soname: str = "",
    needed: Sequence[str] = (),
    *,
    runpath: str = "",
    versions: Sequence[str] = (),
    text: bytes = b"",
    machine: int = 183,
) -> bytes:
    """A 64-bit little-endian shared object; `text` stands in it as its constants would."""
    strings = bytearray(b"\0")

    def put(word: str) -> int:
        place = len(strings)
        strings.extend(word.encode() + b"\0")
        return place

    entries = [(_NEEDED, put(name)) for name in needed]
    entries += [(_SONAME, put(soname))] if soname else []
    entries += [(_RUNPATH, put(runpath))] if runpath else []
    file_name, names = put("libc.so.6"), [put(version) for version in versions]
    needs = struct.pack("<HHIII", 1, len(names), file_name, 16, 0) if names else b""
    for index, name in enumerate(names):
        needs += struct.pack("<IHHII", 0, 0, 0, name, 16 if index < len(names) - 1 else 0)
    start = _HEADER + 2 * _PROGRAM_HEADER
    table, versions_at = start, start + len(strings)
    entries += [(_STRTAB, table), (_STRSZ, len(strings))]
    entries += [(_VERNEED, versions_at), (_VERNEEDNUM, 1)] if names else []
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in [*entries, (0, 0)])
    dynamic_at = versions_at + len(needs)
    body = bytes(strings) + needs + dynamic + b"\0" + text + b"\0"
    total = start + len(body)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM_HEADER, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 4096)
    place = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic), 8)
    return header + load + place + body
