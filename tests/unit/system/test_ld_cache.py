# SPDX-License-Identifier: BSD-3-Clause
"""The loader's cache: all layouts and byte orders, the right machine only, nothing of a damaged one; the real one."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.image.host_programs.linker import write_cache
from kedge.system.ld_cache import CacheEntry, read_cache, read_entries
from tests.builders.gpu_hosts import ARM, X86, X86_32, make_cache
from tests.builders.rows import each_row
from tests.requirements import require_program

ENTRIES = [
    (X86_32, "libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1"),
    (X86, "libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    (X86, "libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
    (ARM, "libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1"),
]
NATIVE = "<" if sys.byteorder == "little" else ">"


@each_row("layout", ["new", "old", "both"])
def test_ld_cache_layouts_give_the_same(layout: str) -> None:
    found = read_cache(make_cache(ENTRIES, NATIVE, layout), "x86_64")
    assert found == [(name, path) for flags, name, path in ENTRIES if flags == X86]


def test_ld_cache_byte_order_is_the_files() -> None:
    other = ">" if NATIVE == "<" else "<"
    assert read_cache(make_cache(ENTRIES, other), "x86_64") == read_cache(make_cache(ENTRIES, NATIVE), "x86_64")


@each_row(
    ("machine", "folder"),
    [("x86_64", "x86_64-linux-gnu"), ("i686", "i386-linux-gnu"), ("aarch64", "aarch64-linux-gnu")],
)
def test_ld_cache_machine_is_told_by_flags(machine: str, folder: str) -> None:
    found = read_cache(make_cache(ENTRIES, NATIVE), machine, (b"libcuda",))
    assert found == [("libcuda.so.1", f"/usr/lib/{folder}/libcuda.so.1")]


def test_ld_cache_unknown_machine_gives_nothing() -> None:
    assert read_cache(make_cache(ENTRIES, NATIVE), "vax") == []


def test_ld_cache_hardware_flags_above_are_no_part_of_the_machine() -> None:
    entries = [(X86 | 0x10000, "libx.so.1", "/usr/lib64/libx.so.1")]
    assert read_cache(make_cache(entries, NATIVE), "x86_64") == [("libx.so.1", "/usr/lib64/libx.so.1")]


def test_ld_cache_says_what_is_for_newer_machines_alone() -> None:
    data = bytearray(make_cache(ENTRIES, NATIVE))
    data[48 + 16 : 48 + 24] = struct.pack(NATIVE + "Q", 1 << 62)
    assert [bool(entry.capabilities) for entry in read_entries(bytes(data))] == [True, False, False, False]


def test_ld_cache_that_is_written_for_an_image_is_read_back() -> None:
    entries = [CacheEntry(flags, name, path, 7, 0) for flags, name, path in ENTRIES]
    read = read_entries(write_cache(entries, {path for _, _, path in ENTRIES[1:]}))
    assert [(entry.flags, entry.name, entry.path, entry.version) for entry in read] == [
        (*row, 7) for row in ENTRIES[1:]
    ]


@each_row(
    "data",
    [
        *(b"", b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0", b"ld.so-1.7.0\0\xff\xff\xff\xff"),
        b"glibc-ld.so.cache1.1" + b"\xff" * 28,
        b"glibc-ld.so.cache1.1" + struct.pack(NATIVE + "I", 1 << 17) + b"\0" * 100,
        b"\x7fELF" + b"\0" * 100,
    ],
)
def test_ld_cache_nonsense_gives_nothing(data: bytes) -> None:
    assert read_cache(data, "x86_64") == []


def test_ld_cache_cut_anywhere_never_fails() -> None:
    whole = make_cache(ENTRIES, NATIVE, "both")
    expected = set(read_cache(whole, "x86_64"))
    for length in range(len(whole)):
        assert set(read_cache(whole[:length], "x86_64")) <= expected


def test_ld_cache_flipped_bytes_never_fail() -> None:
    chance = random.Random(5)
    whole = make_cache(ENTRIES * 20, NATIVE)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        for name, path in read_cache(bytes(data), "x86_64"):
            assert name
            assert path.startswith("/")


def test_ld_cache_agrees_with_ldconfig() -> None:
    cache = Path("/etc/ld.so.cache")
    if not cache.exists():
        pytest.skip("this machine has no /etc/ld.so.cache")
    words = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(os.uname().machine)
    if words is None:
        pytest.skip("ldconfig's name of this machine is not known here")
    told = subprocess.run([require_program("ldconfig"), "-p"], capture_output=True, text=True, check=True).stdout
    pairs = [line.strip().split(" => ") for line in told.splitlines() if " => " in line]
    expected = [(left.split(" (")[0], path) for left, path in pairs if words in left.split(" (")[1]]
    assert read_cache(cache.read_bytes(), os.uname().machine) == expected
