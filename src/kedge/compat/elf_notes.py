# SPDX-License-Identifier: BSD-3-Clause
"""Reads one note of an ELF file by the name of its section. The file is the image's: every number in it is bounded."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kedge.posix.views import View

_HEADER, _ENTRY = 64, 64  # of 64-bit files; a driver has no others
_SHT_NOTE = 7
_MAXIMUM_SECTIONS = 256
_MAXIMUM_NAMES = 1 << 16
_MAXIMUM_NOTE = 1 << 14


def read_note(view: View, path: str, section: str, owner: str) -> bytes | None:
    """The description in the note of `section`, if `owner` made it; None when there is none or the file is odd."""
    header = view.read(path, _HEADER) or b""
    if len(header) < _HEADER or header[:5] != b"\x7fELF\x02" or header[5] not in (1, 2):
        return None
    order: Literal["little", "big"] = "little" if header[5] == 1 else "big"
    start, size = int.from_bytes(header[40:48], order), int.from_bytes(header[58:60], order)
    count, names_at = int.from_bytes(header[60:62], order), int.from_bytes(header[62:64], order)
    if size != _ENTRY or not 0 < count <= _MAXIMUM_SECTIONS or names_at >= count or not _is_offset(start):
        return None
    table = view.read(path, count * _ENTRY, start) or b""
    if len(table) < count * _ENTRY:
        return None
    sections = [_Section(table[at : at + _ENTRY], order) for at in range(0, count * _ENTRY, _ENTRY)]
    names = _read_section(view, path, sections[names_at], _MAXIMUM_NAMES)
    wanted = section.encode() + b"\0"
    for candidate in sections:
        if candidate.kind == _SHT_NOTE and names.startswith(wanted, candidate.name):
            return _parse_note(_read_section(view, path, candidate, _MAXIMUM_NOTE), candidate.alignment, owner, order)
    return None


class _Section:
    __slots__ = ("alignment", "kind", "name", "offset", "size")

    def __init__(self, raw: bytes, order: Literal["little", "big"]) -> None:
        self.name = int.from_bytes(raw[0:4], order)
        self.kind = int.from_bytes(raw[4:8], order)
        self.offset = int.from_bytes(raw[24:32], order)
        self.size = int.from_bytes(raw[32:40], order)
        self.alignment = int.from_bytes(raw[48:56], order)


def _is_offset(value: int) -> bool:
    return value < 1 << 40  # a terabyte: more than any file, less than what lseek refuses


def _read_section(view: View, path: str, section: _Section, limit: int) -> bytes:
    if section.size > limit or not _is_offset(section.offset):
        return b""
    return view.read(path, section.size, section.offset) or b""


def _parse_note(data: bytes, alignment: int, owner: str, order: Literal["little", "big"]) -> bytes | None:
    if len(data) < 12:
        return None
    name_size, size = int.from_bytes(data[0:4], order), int.from_bytes(data[4:8], order)
    if data[12 : 12 + name_size].rstrip(b"\0") != owner.encode():
        return None
    step = alignment if alignment in (4, 8, 16, 32) else 4
    start = 12 + -(-name_size // step) * step
    description = data[start : start + size].strip(b"\0")
    return description or None
