# SPDX-License-Identifier: BSD-3-Clause
"""ELF headers, sections and notes: of a driver's library made here, of this machine's Python, and damaged ones."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import pytest

from kedge.system.elf import ElfDamage, ElfFile
from tests.builders.gpu_hosts import make_compat_library
from tests.builders.rows import each_row

NOTE = {"format": 1, "CUDA version": "12.9", "driver": [535, 550, 560, 565, 570, 575], "device": [1, 2, 7]}
SECTION, OWNER = ".note.cuda.fwd_compatibility", "NVIDIA Corporation"


def open_elf(data: bytes) -> ElfFile:
    return ElfFile(lambda size, offset: data[offset : offset + size])


def test_elf_of_this_machine_names_a_loader_that_is_there() -> None:
    file = open_elf(Path(sys.executable).resolve().read_bytes())
    assert Path(file.read_interpreter(file.read_segments())).is_file()
    assert (file.bits, file.order) == (64, sys.byteorder)


def test_elf_without_a_loader_names_none() -> None:
    assert open_elf(make_compat_library(NOTE)).read_interpreter([]) == ""


@each_row("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\2\1" + b"\0" * 57, b"\x7fELF\3\1" + b"\0" * 90])
def test_elf_header_that_is_none_or_not_whole_is_refused(data: bytes) -> None:
    with pytest.raises(ElfDamage):
        open_elf(data)


@each_row("alignment", [4, 8, 32])
def test_elf_note_is_read_with_any_alignment(alignment: int) -> None:
    text = open_elf(make_compat_library(NOTE, alignment=alignment)).read_note(SECTION, OWNER)
    assert b'"12.9"' in text


def test_elf_note_of_another_owner_or_name_is_none() -> None:
    assert open_elf(make_compat_library(NOTE)).read_note(SECTION, "Somebody") == b""
    assert open_elf(make_compat_library(NOTE, ".note.other")).read_note(SECTION, OWNER) == b""


def test_elf_damage_is_bounded_and_has_its_own_error() -> None:
    chance = random.Random(7)
    whole = make_compat_library(NOTE)
    asked = 0

    def read(size: int, offset: int) -> bytes:
        nonlocal asked
        asked += size
        return bytes(data[offset : offset + size])

    for _ in range(3000):
        data = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole))])])
        for _ in range(chance.randint(1, 6)):
            at = chance.choice([chance.randrange(64), len(whole) - 1 - chance.randrange(300)])
            if at < len(data):
                data[at] = chance.randrange(256)
        asked = 0
        with contextlib.suppress(ElfDamage):
            ElfFile(read).read_note(SECTION, OWNER)
        assert asked < 1 << 17
