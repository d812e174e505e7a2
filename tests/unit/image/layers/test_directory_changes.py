# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a directory as a layer: new, changed, deleted and replaced files, and nothing else."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.base.tree import walk
from kedge.errors import FileProblem, UnsupportedFormat
from kedge.image.layers.directory_changes import read_changes, take_snapshot
from kedge.image.layers.owners import OwnerTable, RecordedOwner
from kedge.image.layers.upper_directory import UpperOptions


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    for name in ("etc/deep", "usr", "empty"):
        (top / name).mkdir(parents=True)
    for name in ("etc/motd", "etc/deep/one", "etc/deep/two", "usr/tool"):
        (top / name).write_text(name)
    (top / "link").symlink_to("usr")
    return top


def list_changes(tree: Path, change: Callable[[], object], options: UpperOptions | None = None) -> list[str]:
    before = take_snapshot(tree)
    change()
    root, _ = read_changes(before, tree, options)
    assert root.layer == -1
    return [os.fsdecode(path) for path, _ in walk(root)]


def test_changes_content_with_the_old_time_is_seen(tree: Path) -> None:
    file = tree / "etc/motd"
    status = file.stat()

    def change() -> None:
        file.write_text("ETC/MOTD")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert list_changes(tree, change) == ["etc", "etc/motd"]


def test_changes_one_after_the_other(tree: Path) -> None:
    changes = {
        "none": ((tree / "etc/motd").read_text, []),
        "a new file comes with its directory": ((tree / "etc/deep/new").touch, ["etc", "etc/deep", "etc/deep/new"]),
        "the mode of a file": (lambda: (tree / "usr/tool").chmod(0o700), ["usr", "usr/tool"]),
        "the mode of a directory": (lambda: (tree / "empty").chmod(0o700), ["empty"]),
        "a deleted file is marked": ((tree / "etc/motd").unlink, ["etc", "etc/.wh.motd"]),
        "a moved directory is all new": (
            lambda: (tree / "etc").rename(tree / "conf"),
            [".wh.etc", "conf", "conf/deep", "conf/deep/new", "conf/deep/one", "conf/deep/two"],
        ),
        "a deleted directory is marked": (lambda: shutil.rmtree(tree / "conf"), [".wh.conf"]),
    }
    assert {name: list_changes(tree, change) for name, (change, _) in changes.items()} == {
        name: expected for name, (_, expected) in changes.items()
    }


def test_changes_a_directory_in_place_of_another_hides_it(tree: Path) -> None:
    def change() -> None:
        (tree / "etc").rename(tree / "moved")  # so that the new one gets another inode
        (tree / "etc").mkdir()
        (tree / "etc/new").touch()
        shutil.rmtree(tree / "moved")

    assert list_changes(tree, change) == ["etc", "etc/.wh..wh..opq", "etc/new"]


def test_changes_kinds_replace_each_other(tree: Path) -> None:
    def change() -> None:
        shutil.rmtree(tree / "etc")
        (tree / "etc").write_text("a file")
        (tree / "link").unlink()
        (tree / "link").mkdir()

    assert list_changes(tree, change) == ["etc", "link"]


def test_changes_a_socket_is_left_out_and_hides(tree: Path) -> None:
    def change() -> None:
        (tree / "usr/tool").unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tree / "usr/tool"))

    assert list_changes(tree, change) == ["usr", "usr/.wh.tool"]


def test_changes_paths_are_left_out(tree: Path) -> None:
    options = UpperOptions(left_out=frozenset((b"etc/motd", b"usr/new")))

    def change() -> None:
        (tree / "etc/motd").unlink()
        (tree / "usr/new").touch()

    assert list_changes(tree, change, options) == ["etc", "usr"]


def test_changes_keep_owners_of_the_image(tree: Path) -> None:
    before = take_snapshot(tree)
    (tree / "usr/tool").write_text("new")
    owners = OwnerTable({b"usr/tool": RecordedOwner(5, 6, 0o4755)})
    (tree / "usr/tool").chmod(0o755)
    root, _ = read_changes(before, tree, UpperOptions(owners=owners))
    tool = root.children[b"usr"].children[b"tool"]
    assert (tool.uid, tool.gid, tool.mode) == (5, 6, 0o4755)


def test_changes_names_that_mean_deletions_are_refused(tree: Path) -> None:
    with pytest.raises(UnsupportedFormat, match=r"'usr/\.wh\.x'"):
        list_changes(tree, (tree / "usr/.wh.x").touch)
    shutil.rmtree(tree / "usr")
    with pytest.raises(UnsupportedFormat, match=r"'\.wh\.x'"):
        list_changes(tree, (tree / ".wh.x").mkdir)


def test_changes_of_a_directory_that_is_gone_are_an_error(tree: Path) -> None:
    before = take_snapshot(tree)
    shutil.rmtree(tree)
    with pytest.raises(FileProblem):
        read_changes(before, tree)
    with pytest.raises(FileProblem):
        take_snapshot(tree)


def test_changes_attributes_of_overlays_do_not_get_into_the_layer(tree: Path) -> None:
    before = take_snapshot(tree)
    try:
        for name in ("user.overlay.opaque", "user.overlay.redirect", "user.kept"):
            os.setxattr(tree / "etc", name, b"y")
            os.setxattr(tree / "etc/motd", name, b"y")
    except OSError as problem:
        pytest.skip(f"attributes cannot be set here: {problem.strerror}")
    root, _ = read_changes(before, tree)
    etc = root.children[b"etc"]
    assert etc.xattrs == etc.children[b"motd"].xattrs == ((b"user.kept", b"y"),)
    assert list(etc.children) == [b"motd"]
