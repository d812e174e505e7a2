# SPDX-License-Identifier: BSD-3-Clause
"""Files of this host: what goes wrong while they are packed, and shared objects with all that they need."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kedge.errors import FileProblem
from kedge.image.host_programs.library_closure import close_over
from kedge.image.host_programs.packer import HostTree
from tests.builders.elf_files import make_library
from tests.builders.folder_sink import MemorySink


class _FullDisk(MemorySink):
    def add(self, data: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    def add_stream(self, size: int, chunks: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_no_circle_of_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    with pytest.raises(OSError, match="No space left") as caught:
        HostTree(_FullDisk()).add(str(tmp_path / "file"))
    assert caught.value.errno == errno.ENOSPC


def test_a_circle_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(FileProblem, match=r"a: too many levels of symbolic links"):
        HostTree(MemorySink()).add(str(tmp_path / "a"))


MACHINE = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine, 62)


def write(folder: Path, soname: str, *needed: str, glibc: str = "2.17", runpath: str = "") -> str:
    path = folder / soname
    path.write_bytes(make_library(soname, needed, versions=[f"GLIBC_{glibc}"], runpath=runpath, machine=MACHINE))
    return str(path)


def test_all_that_is_needed_and_the_newest_glibc(tmp_path: Path) -> None:
    start = write(tmp_path, "libmpi.so.40", "libpal.so.40", "libc.so.6", "libm.so.6", runpath="$ORIGIN")
    write(tmp_path, "libpal.so.40", "libevent.so.7", "libmpi.so.40", glibc="2.9", runpath="$ORIGIN")
    write(tmp_path, "libevent.so.7", glibc="2.34")
    found = close_over([start])
    assert [each.name for each in found.objects] == ["libmpi.so.40", "libpal.so.40", "libevent.so.7"]
    assert (found.newest.name, found.newest.glibc, found.missing) == ("libevent.so.7", "2.34", ())


def test_directories_of_the_environment_come_first(tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    start = write(tmp_path, "libmpi.so.40", "libpal.so.40", runpath="$ORIGIN")
    write(tmp_path, "libpal.so.40")
    other = write(tmp_path / "module", "libpal.so.40")
    assert close_over([start], [str(tmp_path / "module")]).objects[1].path == str(Path(other).resolve())


def test_what_is_absent_is_named(tmp_path: Path) -> None:
    start = write(tmp_path, "libmpi.so.40", "libnowhere.so.9", "libcuda.so.1")
    assert close_over([start]).missing == ("libnowhere.so.9",), "the driver's own come with --nv"
    assert close_over([]).newest is None
