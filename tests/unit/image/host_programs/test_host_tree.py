# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong while files of this host are packed is said as what it is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kedge.errors import FileProblem
from kedge.image.host_programs.packer import HostTree
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
