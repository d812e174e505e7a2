# SPDX-License-Identifier: BSD-3-Clause
"""What dynamic linking needs of ELF files: architecture, interpreter, needed objects and versions, search paths.

`system/elf.py` reads the headers. Every count, offset and length is bounded before it is used.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.system.elf import PT_DYNAMIC, PT_LOAD, ElfDamage, ElfFile, Segment
from kedge.system.files import explained
from kedge.system.spawn import ELFMAG

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_ET_EXEC, _ET_DYN = 2, 3
_MAXIMUM_DYNAMIC = 1 << 20  # bytes
_MAXIMUM_NEEDED = 4096
_MAXIMUM_VERSIONS = 4096  # of all needed objects together
_MAXIMUM_STRINGS = 1 << 20  # bytes of all names of one object together


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


def read_elf(path: Path, *, with_versions: bool = False) -> ElfObject | None:
    """Read a program or shared object; None when the file is no ELF file at all."""
    with explained(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with explained(path):
            if os.pread(descriptor, len(ELFMAG), 0) != ELFMAG:
                return None
            return _read_object(
                lambda size, offset: os.pread(descriptor, size, offset), str(path), with_versions=with_versions
            )
    finally:
        os.close(descriptor)


def parse_elf(data: bytes, where: str) -> ElfObject | None:
    """Parse an ELF file that is in memory, with the versions that it needs."""
    if not data.startswith(ELFMAG):
        return None
    return _read_object(lambda size, offset: data[offset : offset + size], where, with_versions=True)


def _read_object(read: Callable[[int, int], bytes], where: str, *, with_versions: bool) -> ElfObject:
    try:
        file = ElfFile(read)
        if file.kind not in (_ET_EXEC, _ET_DYN):
            raise UnsupportedFormat(f"{where} is an ELF file, but no program and no shared object (type {file.kind})")
        return _Reader(file).read(with_versions=with_versions)
    except ElfDamage as damage:
        raise CorruptImage(
            f"{where}: the ELF file is damaged or cut short ({damage.field})",
            context={"field": damage.field, "offset": str(damage.offset)},
        ) from None


class _Reader:
    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._segments = file.read_segments()
        self._order = "<" if file.order == "little" else ">"

    def read(self, *, with_versions: bool) -> ElfObject:
        """The whole object."""
        dynamic = next((segment for segment in self._segments if segment.kind == PT_DYNAMIC), None)
        values = self._read_dynamic(dynamic) if dynamic else {}
        return ElfObject(
            architecture=self._file.architecture,
            bits=self._file.bits,
            is_dynamic=dynamic is not None,
            interpreter=self._file.read_interpreter(self._segments),
            soname=(values.get(_DT_SONAME) or [""])[0],
            needed=tuple(values.get(_DT_NEEDED, ())),
            rpath=_split_paths(values.get(_DT_RPATH)),
            runpath=_split_paths(values.get(_DT_RUNPATH)),
            needed_versions=self._read_versions(dynamic) if dynamic and with_versions else (),
        )

    def _read_dynamic(self, dynamic: Segment) -> dict[int, list[str]]:
        """The string-valued entries of the dynamic section, by tag."""
        numbers: dict[int, list[int]] = {}
        total = 0
        for tag, value in self._dynamic_entries(dynamic):
            numbers.setdefault(tag, []).append(value)
            total += tag == _DT_NEEDED
            if total > _MAXIMUM_NEEDED:
                raise ElfDamage("DT_NEEDED", dynamic.offset)
        wanted = [tag for tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH) if tag in numbers]
        if not wanted:
            return {}
        if _DT_STRTAB not in numbers or _DT_STRSZ not in numbers:
            raise ElfDamage("DT_STRTAB", dynamic.offset)
        table = self._file_offset(numbers[_DT_STRTAB][0])
        size = numbers[_DT_STRSZ][0]
        return self._read_names(table, size, {tag: numbers[tag] for tag in wanted})

    def _read_names(self, table: int, size: int, places: dict[int, list[int]]) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        total = 0
        for tag, offsets in places.items():
            for place in offsets:
                if place >= size:
                    raise ElfDamage("string table index", table)
                text = self._file.read_string(table + place, size - place)
                total += len(text)
                if total > _MAXIMUM_STRINGS:
                    raise ElfDamage("DT_NEEDED", table)
                names.setdefault(tag, []).append(text)
        return names

    def _read_versions(self, dynamic: Segment) -> tuple[str, ...]:
        """Names such as GLIBC_2.34 that the object asks of those it needs: two chains of offsets, both bounded."""
        numbers = dict(self._dynamic_entries(dynamic))
        if _DT_VERNEED not in numbers or _DT_STRTAB not in numbers:
            return ()
        need, left = self._file_offset(numbers[_DT_VERNEED]), _MAXIMUM_VERSIONS
        table = self._file_offset(numbers[_DT_STRTAB])
        names: dict[str, None] = {}
        for _ in range(min(numbers.get(_DT_VERNEEDNUM, 0), _MAXIMUM_NEEDED)):
            data = self._file.read_at(need, 16, "DT_VERNEED")
            _, count, _, first, following = struct.unpack(self._order + "HHIII", data)
            entry = need + first
            for _ in range(min(count, left)):
                left -= 1
                name, step = struct.unpack(self._order + "8xII", self._file.read_at(entry, 16, "vna_name"))
                names[self._file.read_string(table + name)] = None
                entry += step
            need += following
        return tuple(names)

    def _dynamic_entries(self, dynamic: Segment) -> Iterator[tuple[int, int]]:
        if dynamic.size > _MAXIMUM_DYNAMIC:
            raise ElfDamage("PT_DYNAMIC", dynamic.offset)
        layout = struct.Struct(self._order + ("qQ" if self._file.bits == 64 else "iI"))
        data = self._file.read_at(dynamic.offset, dynamic.size // layout.size * layout.size, "PT_DYNAMIC")
        for tag, value in layout.iter_unpack(data):
            if tag == _DT_NULL:
                return
            yield tag, value

    def _file_offset(self, address: int) -> int:
        for segment in self._segments:
            if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ElfDamage("DT_STRTAB", address)


def _split_paths(values: list[str] | None) -> tuple[str, ...]:
    return tuple(path for value in values or () for path in value.split(":") if path)
