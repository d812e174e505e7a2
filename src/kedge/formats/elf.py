# SPDX-License-Identifier: BSD-3-Clause
"""The part of ELF that dynamic linking needs: architecture, interpreter, needed objects and versions, search paths.

Only program headers are read, as the kernel and the dynamic loader do; sections may be missing or lie. Every count,
offset and length is bounded before it is used. Specification: System V ABI, chapters 4 and 5; constants as in <elf.h>.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.posix.files import explained

_ELF_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_ET_EXEC, _ET_DYN = 2, 3
_MAXIMUM_SEGMENTS = 1024
_MAXIMUM_DYNAMIC = 1 << 20  # bytes
_MAXIMUM_NEEDED = 4096
_MAXIMUM_VERSIONS = 4096  # of all needed objects together
_MAXIMUM_STRING = 4096  # PATH_MAX; long RPATHs of build farms stay below it too
_MAXIMUM_STRINGS = 1 << 20  # bytes of all names of one object together

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


@dataclass(frozen=True, slots=True)
class ElfObject:
    """What the loader needs to know about a program or shared object."""

    architecture: str  # OCI name, or `machine-N` for one that has none
    bits: int
    is_dynamic: bool
    interpreter: str = ""  # PT_INTERP
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    needed_versions: tuple[str, ...] = ()  # GLIBC_2.34, …; only where they were asked for


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_elf(path: Path, *, with_versions: bool = False) -> ElfObject | None:
    """Read a program or shared object; None when the file is no ELF file at all."""
    with explained(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with explained(path):
            head = os.pread(descriptor, 64, 0)
            if not head.startswith(_ELF_MAGIC):
                return None
            reader = _Reader(lambda size, offset: os.pread(descriptor, size, offset), head, str(path))
            return reader.read(with_versions=with_versions)
    finally:
        os.close(descriptor)


def parse_elf(data: bytes, where: str) -> ElfObject | None:
    """Parse an ELF file that is in memory, with the versions that it needs."""
    if not data.startswith(_ELF_MAGIC):
        return None
    return _Reader(lambda size, offset: data[offset : offset + size], data[:64], where).read(with_versions=True)


def identify_machine(head: bytes) -> str:
    """The OCI architecture that an ELF header is for; '' where it is no ELF header or the machine has no such name."""
    if len(head) < 20 or not head.startswith(_ELF_MAGIC) or head[5] not in (1, 2):
        return ""
    is_big = head[5] == 2
    return _MACHINES.get(int.from_bytes(head[18:20], "big" if is_big else "little"), ("", ""))[is_big]


class _Reader:
    def __init__(self, read: Callable[[int, int], bytes], head: bytes, where: str) -> None:
        self._read = read  # of a size, at an offset
        self._head = head
        self._where = where
        if len(head) < 52 or head[4] not in (1, 2) or head[5] not in (1, 2):
            raise CorruptImage(f"{where}: the ELF header is damaged", context={"field": "e_ident"})
        self._wide = head[4] == 2
        self._order = "<" if head[5] == 1 else ">"
        if self._wide and len(head) < 64:
            raise self._damaged("e_ident", 0)

    def read(self, *, with_versions: bool) -> ElfObject:
        """The whole object."""
        kind, machine = struct.unpack_from(self._order + "HH", self._head, 16)
        if kind not in (_ET_EXEC, _ET_DYN):
            raise UnsupportedFormat(f"{self._where} is an ELF file, but no program and no shared object (type {kind})")
        segments = self._read_segments()
        dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
        interpreter = next((segment for segment in segments if segment.kind == _PT_INTERP), None)
        values = self._read_dynamic(dynamic, segments) if dynamic else {}
        return ElfObject(
            architecture=identify_machine(self._head) or f"machine-{machine}",
            bits=64 if self._wide else 32,
            is_dynamic=dynamic is not None,
            interpreter=self._read_string(interpreter.offset, interpreter.size) if interpreter else "",
            soname=(values.get(_DT_SONAME) or [""])[0],
            needed=tuple(values.get(_DT_NEEDED, ())),
            rpath=_split_paths(values.get(_DT_RPATH)),
            runpath=_split_paths(values.get(_DT_RUNPATH)),
            needed_versions=self._read_versions(dynamic, segments) if dynamic and with_versions else (),
        )

    def _read_segments(self) -> list[_Segment]:
        if self._wide:
            (offset,) = struct.unpack_from(self._order + "Q", self._head, 32)
            entry_size, count = struct.unpack_from(self._order + "HH", self._head, 54)
            layout = struct.Struct(self._order + "IIQQQQQQ")
        else:
            (offset,) = struct.unpack_from(self._order + "I", self._head, 28)
            entry_size, count = struct.unpack_from(self._order + "HH", self._head, 42)
            layout = struct.Struct(self._order + "IIIIIIII")
        if count > _MAXIMUM_SEGMENTS or (count and entry_size != layout.size):
            raise self._damaged("e_phnum", offset)
        data = self._read_at(offset, count * layout.size, "program headers")
        return [self._segment(fields) for fields in layout.iter_unpack(data)]

    def _segment(self, fields: tuple[int, ...]) -> _Segment:
        if self._wide:
            return _Segment(fields[0], fields[2], fields[3], fields[5])
        return _Segment(fields[0], fields[1], fields[2], fields[4])

    def _read_dynamic(self, dynamic: _Segment, segments: list[_Segment]) -> dict[int, list[str]]:
        """The string-valued entries of the dynamic section, by tag."""
        numbers: dict[int, list[int]] = {}
        total = 0
        for tag, value in self._dynamic_entries(dynamic):
            numbers.setdefault(tag, []).append(value)
            total += tag == _DT_NEEDED
            if total > _MAXIMUM_NEEDED:
                raise self._damaged("DT_NEEDED", dynamic.offset)
        wanted = [tag for tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH) if tag in numbers]
        if not wanted:
            return {}
        if _DT_STRTAB not in numbers or _DT_STRSZ not in numbers:
            raise self._damaged("DT_STRTAB", dynamic.offset)
        table = self._file_offset(numbers[_DT_STRTAB][0], segments)
        size = numbers[_DT_STRSZ][0]
        return self._read_names(table, size, {tag: numbers[tag] for tag in wanted})

    def _read_names(self, table: int, size: int, places: dict[int, list[int]]) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        total = 0
        for tag, offsets in places.items():
            for place in offsets:
                if place >= size:
                    raise self._damaged("string table index", table)
                text = self._read_string(table + place, size - place)
                total += len(text)
                if total > _MAXIMUM_STRINGS:
                    raise self._damaged("DT_NEEDED", table)
                names.setdefault(tag, []).append(text)
        return names

    def _read_versions(self, dynamic: _Segment, segments: list[_Segment]) -> tuple[str, ...]:
        """Names such as GLIBC_2.34 that the object asks of those it needs: two chains of offsets, both bounded."""
        numbers = dict(self._dynamic_entries(dynamic))
        if _DT_VERNEED not in numbers or _DT_STRTAB not in numbers:
            return ()
        need, left = self._file_offset(numbers[_DT_VERNEED], segments), _MAXIMUM_VERSIONS
        table = self._file_offset(numbers[_DT_STRTAB], segments)
        names: dict[str, None] = {}
        for _ in range(min(numbers.get(_DT_VERNEEDNUM, 0), _MAXIMUM_NEEDED)):
            data = self._read_at(need, 16, "DT_VERNEED")
            _, count, _, first, following = struct.unpack(self._order + "HHIII", data)
            entry = need + first
            for _ in range(min(count, left)):
                left -= 1
                name, step = struct.unpack(self._order + "8xII", self._read_at(entry, 16, "vna_name"))
                names[self._read_string(table + name, _MAXIMUM_STRING)] = None
                entry += step
            need += following
        return tuple(names)

    def _dynamic_entries(self, dynamic: _Segment) -> Iterator[tuple[int, int]]:
        if dynamic.size > _MAXIMUM_DYNAMIC:
            raise self._damaged("PT_DYNAMIC", dynamic.offset)
        layout = struct.Struct(self._order + ("qQ" if self._wide else "iI"))
        data = self._read_at(dynamic.offset, dynamic.size // layout.size * layout.size, "PT_DYNAMIC")
        for tag, value in layout.iter_unpack(data):
            if tag == _DT_NULL:
                return
            yield tag, value

    def _file_offset(self, address: int, segments: list[_Segment]) -> int:
        for segment in segments:
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise self._damaged("DT_STRTAB", address)

    def _read_string(self, offset: int, limit: int) -> str:
        data = self._read_at(offset, min(limit, _MAXIMUM_STRING), "string", exact=False)
        text, end, _ = data.partition(b"\0")
        if not end:
            raise self._damaged("string", offset)
        return text.decode("utf-8", "surrogateescape")

    def _read_at(self, offset: int, size: int, field: str, *, exact: bool = True) -> bytes:
        if offset >= 1 << 62:  # pread takes a signed 64-bit offset
            raise self._damaged(field, offset)
        data = self._read(size, offset)
        if exact and len(data) < size:
            raise self._damaged(field, offset)
        return data

    def _damaged(self, field: str, offset: int) -> CorruptImage:
        return CorruptImage(
            f"{self._where}: the ELF file is damaged or cut short ({field})",
            context={"field": field, "offset": str(offset)},
        )


def _split_paths(values: list[str] | None) -> tuple[str, ...]:
    return tuple(path for value in values or () for path in value.split(":") if path)
