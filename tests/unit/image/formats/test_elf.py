# SPDX-License-Identifier: BSD-3-Clause
"""ELF reading: golden objects made here byte by byte, programs of this machine, and damaged ones."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, FileProblem, KedgeError, UnsupportedFormat
from kedge.image.formats.elf import ElfObject, parse_elf, read_elf
from tests.builders.elf_files import make_library
from tests.builders.rows import each_row

NAMES = {"libm.so.6": 1, "libx.so": 15, "me.so": 14, "$ORIGIN/lib:/opt/y": 29}


def make_elf(*, wide: bool = True, big: bool = False, machine: int = 62, names: dict[str, int] = NAMES) -> bytes:
    """A shared object with one PT_LOAD over everything, PT_INTERP and PT_DYNAMIC; no sections."""
    order = ">" if big else "<"
    header_size, segment_size = (64, 56) if wide else (52, 32)
    interpreter = b"/lib/ld.so\0"
    strings, places = b"\0", {}
    for name in names:
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    base = header_size + 3 * segment_size
    string_place = base + len(interpreter)
    dynamic_place = string_place + len(strings)
    pair = struct.Struct(order + ("qQ" if wide else "iI"))
    entries = [(tag, places[name]) for name, tag in names.items()]
    dynamic = b"".join(pair.pack(*e) for e in [*entries, (5, 0x1000 + string_place), (10, len(strings)), (0, 0)])
    total = dynamic_place + len(dynamic)
    segments = [(1, 0, 0x1000, total), (3, base, 0x1000 + base, len(interpreter)), (2, dynamic_place, 0, len(dynamic))]
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if big else 1, 1]) + bytes(9)
    head = order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH")
    out = ident + struct.pack(head, 3, machine, 1, 0, header_size, 0, 0, header_size, segment_size, 3, 0, 0, 0)
    for kind, offset, address, size in segments:
        if wide:
            out += struct.pack(order + "IIQQQQQQ", kind, 5, offset, address, address, size, size, 0)
        else:
            out += struct.pack(order + "IIIIIIII", kind, offset, address, address, size, size, 5, 0)
    return out + interpreter + strings + dynamic


@each_row(
    ("wide", "big", "machine", "architecture"),
    [
        *((True, False, 62, "amd64"), (True, False, 183, "arm64"), (True, False, 21, "ppc64le")),
        *((True, True, 21, "ppc64"), (True, True, 22, "s390x"), (False, False, 3, "386"), (False, False, 40, "arm")),
        (True, False, 9999, "machine-9999"),
    ],
)
def test_elf_reads_golden_object(tmp_path: Path, wide: bool, big: bool, machine: int, architecture: str) -> None:
    (tmp_path / "x").write_bytes(make_elf(wide=wide, big=big, machine=machine))
    assert read_elf(tmp_path / "x") == ElfObject(
        architecture=architecture,
        bits=64 if wide else 32,
        is_dynamic=True,
        interpreter="/lib/ld.so",
        soname="me.so",
        needed=("libm.so.6",),
        rpath=("libx.so",),
        runpath=("$ORIGIN/lib", "/opt/y"),
    )


def test_elf_reads_program_of_this_machine() -> None:
    found = read_elf(Path(sys.executable).resolve())
    assert found.interpreter.startswith("/lib")
    assert any(name.startswith("libc.") for name in found.needed)


@each_row("data", [b"", b"\x7fEL", b"#!/bin/sh\n", bytes(100)])
def test_elf_other_files_are_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    assert read_elf(tmp_path / "x") is None


def test_elf_missing_file_and_wrong_type(tmp_path: Path) -> None:
    with pytest.raises(FileProblem):
        read_elf(tmp_path / "nothing")
    with pytest.raises(FileProblem):
        read_elf(tmp_path)
    data = bytearray(make_elf())
    data[16] = 1  # ET_REL: an object file
    (tmp_path / "x.o").write_bytes(data)
    with pytest.raises(UnsupportedFormat, match="type 1"):
        read_elf(tmp_path / "x.o")


def test_elf_cut_anywhere_gives_named_error(tmp_path: Path) -> None:
    whole = make_elf()
    for length in range(4, len(whole) - 16):  # the last 16 bytes are the end mark
        (tmp_path / "x").write_bytes(whole[:length])
        with pytest.raises(CorruptImage) as caught:
            read_elf(tmp_path / "x")
        assert "field" in caught.value.context


@each_row("wide", [True, False])
def test_elf_with_flipped_bytes_never_escapes_with_another_error(tmp_path: Path, wide: bool) -> None:
    whole = make_elf(wide=wide)
    chance = random.Random(11)
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(4, len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        (tmp_path / "x").write_bytes(data)
        try:
            read_elf(tmp_path / "x")
        except KedgeError:
            continue


def test_elf_with_endless_needs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(make_elf(names={f"lib{n}.so": 1 for n in range(5000)}))
    with pytest.raises(CorruptImage, match="DT_NEEDED"):
        read_elf(tmp_path / "x")


def test_needed_versions() -> None:
    data = make_library("libx.so.1", ["libc.so.6"], versions=["GLIBC_2.17", "GLIBC_2.34"])
    elf = parse_elf(data, "libx.so.1")
    assert (elf.soname, elf.needed_versions) == ("libx.so.1", ("GLIBC_2.17", "GLIBC_2.34"))
    assert parse_elf(b"#!/bin/sh", "x") is None


def test_needed_versions_that_lie_are_bounded() -> None:
    whole = make_library("libx.so.1", ["libc.so.6"], versions=["GLIBC_2.17"])
    for cut in range(64, len(whole), 7):
        with contextlib.suppress(CorruptImage):
            parse_elf(whole[:cut], "cut")
    for place in range(64, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        with contextlib.suppress(CorruptImage):
            parse_elf(bytes(damaged), "damaged")
