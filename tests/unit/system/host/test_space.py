# SPDX-License-Identifier: BSD-3-Clause
"""Free space, quotas and better places. Needs nothing."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

import pytest

from kedge.base.size import format_size
from kedge.errors import NoSpace
from kedge.system import libc
from kedge.system.host import space
from kedge.system.host.space import Mount, find_mount, free_space, parse_quota, read_quota, require_space
from tests.builders.rows import each_row
from tests.wording import assert_ends, assert_says

HUGE = 1 << 60


def test_space_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    found = free_space(tmp_path / "not" / "yet")
    assert found.path == tmp_path
    assert 0 < found.usable <= found.free < found.total


def test_space_quota_bounds_what_is_usable() -> None:
    assert space.Space(Path("/"), 1000, 5000, 400).usable == 400
    assert space.Space(Path("/"), 1000, 5000, 4000).usable == 1000


def test_space_quota_of_this_machine_can_be_asked(tmp_path: Path) -> None:
    left, limit = read_quota(tmp_path)
    assert (left is None) == (limit is None)


def test_require_space_names_needed_free_and_place(tmp_path: Path) -> None:
    assert require_space(tmp_path, 1, "the image").path == tmp_path
    with pytest.raises(NoSpace) as caught:
        require_space(tmp_path / "store", HUGE, "pulling debian", environ={})
    assert_says(caught.value.message, "base/pulling-debian-needs-about", "1.15 EB")
    assert str(tmp_path) in caught.value.message
    assert "kedge cache clean" in (caught.value.hint or "")
    assert caught.value.context["needed"] == str(HUGE)


def test_require_space_says_how_another_place_is_chosen(tmp_path: Path) -> None:
    """KEDGE_CACHEDIR is no remedy where the output does not fit."""
    with pytest.raises(NoSpace) as caught:
        require_space(tmp_path, HUGE, "pulling debian", environ={}, choice="--dir {}")
    assert_ends(caught.value.hint or "", "base/choose-another-directory-dir-directory")


def test_require_space_proposes_a_place_with_room(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    better = space.find_better_place(1000, avoid=tmp_path, environ={"SCRATCH": "relative", "WORK": str(memory)})
    assert better.path == memory
    nowhere = {"SCRATCH": str(tmp_path), "WORK": "/proc"}
    assert space.find_better_place(HUGE, avoid=tmp_path, environ=nowhere) is None


def test_mount_is_the_longest_that_contains_the_folder(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:5 / /lustre rw - lustre 10.0.0.1@o2ib:/lustre rw\n"
        "3 1 0:6 / /lustre/with\\040space rw - nfs4 server:/export rw\n"
        "garbage\n"
    )
    assert find_mount(Path("/lustre/ada"), table) == Mount("lustre", "10.0.0.1@o2ib:/lustre", "/lustre")
    assert find_mount(Path("/lustrex"), table) == Mount("ext4", "/dev/sda1", "/")
    assert find_mount(Path("/lustre/with space/x"), table) == Mount("nfs4", "server:/export", "/lustre/with space")


LUSTRE = Mount("lustre", "10.0.0.1@o2ib:/lustre", "/lustre/project")


@each_row(
    ("text", "found"),
    [
        ("/lustre/project  1024  0  4096  -  12  0  0  -\n", [(1 << 20, 4 << 20)]),
        ("/lustre/project\n                 5000*  4096  0  6d  12  0  0  -\n", [(5000 << 10, 4 << 20)]),
        ("/lustre/project [1024] 2048 4096 - 1 0 0 -\n", [(1 << 20, 4 << 20)]),
        ("/lustre/project 1024 0 0 - 1 0 0 -\n", [(1 << 20, 0)]),
        *(("Permission denied\n", []), ("/lustre/project x y z\n", []), ("/lustre/project", []), ("", [])),
    ],
)
def test_quota_answers_of_programs_are_read(text: str, found: list[tuple[int, int]]) -> None:
    assert list(parse_quota(text, LUSTRE)) == found


def make_program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_quota_program_of_lustre_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lfs quota` repeats the place it was asked about, so it must be asked about the mount point."""
    mount = Mount("lustre", "fs", str(tmp_path))
    make_program(tmp_path, "lfs", f'test "$1 $2 $3 $4" = "quota -q -u {os.getuid()}" && echo "$5 100 0 300 -"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert list(space._ask_program(mount)) == [(100 << 10, 300 << 10)]


def test_quota_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "quota", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(space, "_QUOTA_TIMEOUT", 0.2)
    assert list(space._ask_program(Mount("nfs4", "server:/home", "/home"))) == []


def test_quota_structure_is_the_kernels() -> None:
    """struct if_dqblk of linux/quota.h: eight 64-bit fields and a mask, padded to 72 bytes."""
    data = struct.pack("<8QI4x", 1000, 900, 5_000_000, 10, 9, 8, 0, 0, 0x3F)
    kind = libc._make_quota_type()
    quota = kind.from_buffer_copy(data)
    assert (quota.block_hard_limit, quota.current_space, quota.valid) == (1000, 5_000_000, 0x3F)
    assert ctypes.sizeof(kind) == 72


@each_row(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (1_520_000_000, "1.52 GB")],
)
def test_size_reads_well(size: int, text: str) -> None:
    assert format_size(size) == text
