# SPDX-License-Identifier: BSD-3-Clause
"""Mount points for a step in a directory that is written: made before it, and gone after it."""

from __future__ import annotations

import os

from kedge.container.mounts.step_points import EMULATION_FILES, StepPoints

POINTS = [("/proc", "d"), ("/etc/hosts", "f"), ("/data/deep/er", "d"), ("/link/x", "d")]


def make_root(folder):
    (folder / "etc/apt/apt.conf.d").mkdir(parents=True)
    (folder / "target").mkdir()
    (folder / "link").symlink_to("/target")
    for place in (folder, folder / "etc", folder / "etc/apt/apt.conf.d", folder / "target"):
        os.utime(place, ns=(10**18, 10**18))
    return folder


def list_tree(folder) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def test_points_are_there_meanwhile_and_leave_no_trace(tmp_path) -> None:
    root = make_root(tmp_path / "root")
    before = list_tree(root)
    with StepPoints(str(root), POINTS):
        assert (root / "proc").is_dir()
        assert (root / "etc/hosts").is_file()
        assert (root / "data/deep/er").is_dir()
        assert (root / "target/x").is_dir()
        assert (root / EMULATION_FILES[0][0].lstrip("/")).read_text() == EMULATION_FILES[0][1]
    assert list_tree(root) == before


def test_what_a_step_put_there_stays(tmp_path) -> None:
    root = make_root(tmp_path / "root")
    with StepPoints(str(root), POINTS):
        (root / "etc/hosts").write_text("its own\n")
        (root / "data/deep/kept").touch()
        (root / "proc").rmdir()
    assert (root / "etc/hosts").read_text() == "its own\n"
    assert (root / "data/deep/kept").exists()
    assert not (root / "data/deep/er").exists()


def test_no_points_no_files(tmp_path) -> None:
    root = make_root(tmp_path / "root")
    with StepPoints(str(root), []):
        assert not list((root / "etc/apt/apt.conf.d").iterdir())
