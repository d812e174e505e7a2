# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the tests side by side share the machine's mount points: the last one removes them, and no other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.tutorials.mount_points import mount_point


def test_who_made_a_mount_point_leaves_it_to_the_others(tmp_path: Path) -> None:
    path = tmp_path / "scratch"
    first, second = ExitStack(), ExitStack()
    first.enter_context(mount_point(path))
    second.enter_context(mount_point(path))
    first.close()
    assert path.is_dir()
    second.close()
    assert not path.exists()


def test_a_directory_of_the_machine_stays(tmp_path: Path) -> None:
    path = tmp_path / "scratch"
    path.mkdir()
    with mount_point(path):
        pass
    assert path.is_dir()
