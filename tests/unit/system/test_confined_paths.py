# SPDX-License-Identifier: BSD-3-Clause
"""Confined paths: no link is followed, nothing outside is touched."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kedge.system.confined_paths import Descent, open_folder, remove_tree
from tests.builders.layers import names_in


def test_open_folder_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.close(open_folder(tmp_path / "folder"))
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        open_folder(tmp_path / "link")


def test_remove_tree_takes_read_only_folders_and_leaves_link_targets(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/f").write_text("x")
    (tree / "a/link").symlink_to(outside)
    os.mkfifo(tree / "a/pipe")
    for path in (tree / "a/b", tree / "a"):
        path.chmod(0)
    tree.chmod(0o500)
    remove_tree(tree)
    assert names_in(tmp_path) == ["outside"]
    assert names_in(outside) == ["kept"]


def test_remove_tree_takes_files_links_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "l").symlink_to("/")
    for name in ("f", "l", "missing", "missing/below"):
        remove_tree(tmp_path / name)
    assert names_in(tmp_path) == []


def make_deep(place: Path, levels: int) -> None:
    here = os.open(place, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def test_remove_tree_is_not_stopped_by_depth_or_few_descriptors(tmp_path: Path) -> None:
    make_deep(tmp_path, 2050)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256 + len(list(Path("/proc/self/fd").iterdir())), before[1]))
    try:
        remove_tree(tmp_path / "d")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert names_in(tmp_path) == []


def test_a_folder_that_is_moved_does_not_lead_elsewhere(tmp_path: Path) -> None:
    make_deep(tmp_path, 200)
    (tmp_path / "other").mkdir()
    way = Descent(open_folder(tmp_path))
    place = tmp_path
    for _ in range(200):
        way.enter(open_folder("d", at=way.folder))
    for _ in range(100):
        place = place / "d"
    place.rename(tmp_path / "other" / "d")
    for _ in range(100):
        way.leave()
    with pytest.raises(OSError, match="moved"):
        way.leave()
    way.close()
