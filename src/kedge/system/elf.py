# SPDX-License-Identifier: BSD-3-Clause
"""ELF files: machine, segments, sections and notes. The one module that knows where their fields lie.

`image/formats/elf.py` reads by it what dynamic linking needs. A start reads it too, so it imports next to nothing. The
file may be an image's: every count, offset and length is bounded before it is used. Specification: System V ABI,
chapters 4 and 5; constants as in <elf.h>.
"""

from __future__ import annotations

from kedge.system.spawn import ELFMAG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
_SHT_NOTE = 7
_MAXIMUM_SEGMENTS = 1024
_MAXIMUM_STRING = 4096  # PATH_MAX; long RPATHs of build farms stay below it too
_MAXIMUM_SECTIONS = 256
_MAXIMUM_NAMES = 1 << 16  # bytes of the names of all sections
_MAXIMUM_NOTE = 1 << 14
_MAXIMUM_OFFSET = 1 << 40  # a terabyte: more than any file, less than what lseek and pread refuse
_SECTION_HEADER = 64

# e_machine -> OCI architecture for little and big endian
_MACHINES = {
    3: ("386", ""),
    8: ("mipsle", "mips"),
    20: ("", "ppc"),
    21: ("ppc64le", "ppc64"),
    22: ("", "s390x"),
    40: ("arm", "armbe"),
    62: ("amd64", ""),
    183: ("arm64", "arm64be"),
    243: ("riscv64", ""),
    258: ("loong64", ""),
}


def identify_machine(head: bytes) -> str:
    """The OCI architecture that an ELF header is for; '' where it is no ELF header or the machine has no such name."""
    if len(head) < 20 or not head.startswith(ELFMAG) or head[5] not in (1, 2):
        return ""
    is_big = head[5] == 2
    return _MACHINES.get(int.from_bytes(head[18:20], "big" if is_big else "little"), ("", ""))[is_big]


class ElfDamage(Exception):
    """A file that is no ELF file, or whose `field` cannot be what it says."""

    def __init__(self, field: str, offset: int) -> None:
        super().__init__(field)
        self.field = field
        self.offset = offset


class Segment:
    """One program header."""

    __slots__ = ("address", "kind", "offset", "size")

    def __init__(self, kind: int, offset: int, address: int, size: int) -> None:
        self.kind = kind
        self.offset = offset
        self.address = address
        self.size = size


class ElfFile:
    """A file with a whole header; `read` gives so many bytes at an offset, fewer at the end. Raises ElfDamage."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._head = head = read(64, 0)
        if not head.startswith(ELFMAG) or len(head) < 52 or head[4] not in (1, 2) or head[5] not in (1, 2):
            raise ElfDamage("e_ident", 0)
        self.bits = 64 if head[4] == 2 else 32
        self.order: Literal["little", "big"] = "little" if head[5] == 1 else "big"
        if self.bits == 64 and len(head) < 64:
            raise ElfDamage("e_ident", 0)
        self.kind = self.number(head, 16, 2)
        self.machine = self.number(head, 18, 2)
        self.architecture = identify_machine(head) or f"machine-{self.machine}"  # OCI name, where there is one

    def number(self, data: bytes, at: int, size: int) -> int:
        """A field of bytes of this file, in its byte order."""
        return int.from_bytes(data[at : at + size], self.order)

    def read_at(self, offset: int, size: int, field: str, *, is_exact: bool = True) -> bytes:
        """The bytes of `field`."""
        if offset >= _MAXIMUM_OFFSET:
            raise ElfDamage(field, offset)
        data = self._read(size, offset)
        if is_exact and len(data) < size:
            raise ElfDamage(field, offset)
        return data

    def read_string(self, offset: int, limit: int = _MAXIMUM_STRING) -> str:
        """A text that ends with a NUL within the limit."""
        data = self.read_at(offset, min(limit, _MAXIMUM_STRING), "string", is_exact=False)
        text, end, _ = data.partition(b"\0")
        if not end:
            raise ElfDamage("string", offset)
        return text.decode("utf-8", "surrogateescape")

    def read_segments(self) -> list[Segment]:
        """The program headers, which the kernel and the dynamic loader go by; sections may be missing or lie."""
        # e_phoff, e_phentsize, e_phnum; p_offset, p_vaddr and p_filesz, whose place the flags of 64-bit files move
        if self.bits == 64:
            width, size, start, places = 8, 56, self.number(self._head, 32, 8), (8, 16, 32)
        else:
            width, size, start, places = 4, 32, self.number(self._head, 28, 4), (4, 8, 16)
        entry_size, count = (self.number(self._head, at, 2) for at in ((54, 56) if self.bits == 64 else (42, 44)))
        if count > _MAXIMUM_SEGMENTS or (count and entry_size != size):
            raise ElfDamage("e_phnum", start)
        data = self.read_at(start, count * size, "program headers")
        return [
            Segment(self.number(data, at, 4), *(self.number(data, at + place, width) for place in places))
            for at in range(0, count * size, size)
        ]

    def read_interpreter(self, segments: list[Segment]) -> str:
        """The dynamic loader that a program names; empty where it needs none."""
        for segment in segments:
            if segment.kind == PT_INTERP:
                return self.read_string(segment.offset, segment.size)
        return ""

    def read_note(self, section: str, owner: str) -> bytes:
        """The description in the note of `section`, if `owner` made it; of 64-bit files, which all drivers are."""
        start, size = self.number(self._head, 40, 8), self.number(self._head, 58, 2)
        count, names_at = self.number(self._head, 60, 2), self.number(self._head, 62, 2)
        is_possible = size == _SECTION_HEADER and 0 < count <= _MAXIMUM_SECTIONS and names_at < count
        if self.bits != 64 or not is_possible:
            raise ElfDamage("e_shnum", start)
        table = self.read_at(start, count * size, "section headers")
        headers = [table[at : at + size] for at in range(0, count * size, size)]
        names, wanted = self._read_section(headers[names_at], _MAXIMUM_NAMES), section.encode() + b"\0"
        for header in headers:
            if self.number(header, 4, 4) == _SHT_NOTE and names.startswith(wanted, self.number(header, 0, 4)):
                return self._parse_note(self._read_section(header, _MAXIMUM_NOTE), self.number(header, 48, 8), owner)
        return b""

    def _read_section(self, header: bytes, limit: int) -> bytes:
        offset, size = self.number(header, 24, 8), self.number(header, 32, 8)
        if size > limit:
            raise ElfDamage("sh_size", offset)
        return self.read_at(offset, size, "section", is_exact=False)

    def _parse_note(self, data: bytes, alignment: int, owner: str) -> bytes:
        name_size, size = self.number(data, 0, 4), self.number(data, 4, 4)
        if data[12 : 12 + name_size].rstrip(b"\0") != owner.encode():
            return b""
        step = alignment if alignment in (4, 8, 16, 32) else 4
        start = 12 + -(-name_size // step) * step
        return data[start : start + size].strip(b"\0")
