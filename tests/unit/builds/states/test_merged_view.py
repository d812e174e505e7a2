# SPDX-License-Identifier: BSD-3-Clause
"""Views of states: levels merged as the kernel's overlay merges them, links that stay inside."""

from __future__ import annotations

import os

import pytest

from kedge.builds.states.merged_view import MergedView, ViewLevel, view_directory
from kedge.image.layers.owners import OwnerTable, RecordedOwner
from tests.builders.copy_cases import write_tree


def hide(path) -> None:
    """A whiteout, as overlays have it."""
    try:
        os.mknod(path, 0o020000, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("no whiteouts can be made here")


@pytest.fixture(name="view")
def make_view(tmp_path) -> MergedView:
    write_tree(tmp_path / "base", {
        "etc/a": b"base", "etc/b": b"base", "etc/c": b"base", "opaque/old": b"", "file": b"", "dir/x": b"",
        "lib": "-> usr/lib", "usr/lib/x": b"lib", "gone/deep/x": b"",
    })  # fmt: skip
    write_tree(tmp_path / "one", {"etc/a": b"one", "opaque/new": b"", "file/now": b"directory"})
    write_tree(tmp_path / "two", {"dir": b"now a file", "usr/lib/y": b"two"})
    hide(tmp_path / "one/etc/b")
    hide(tmp_path / "two/gone")
    try:
        os.setxattr(tmp_path / "one/opaque", "user.overlay.opaque", b"y")
    except OSError:
        pytest.skip("this file system has no user attributes")
    owners = OwnerTable({b"etc/c": RecordedOwner(5, 6, 0o4755)})
    return MergedView((ViewLevel(tmp_path / "base", owners), ViewLevel(tmp_path / "one"), ViewLevel(tmp_path / "two")))


def test_view_merges_levels(view: MergedView) -> None:
    assert (view.names("/"), view.names("/etc")) == (["dir", "etc", "file", "lib", "opaque", "usr"], ["a", "c"])
    assert (view.read("/etc/a"), view.read("/etc/b"), view.names("/opaque")) == (b"one", None, ["new"])
    assert (view.kind("/file"), view.read("/file/now"), view.kind("/dir")) == ("d", b"directory", "f")
    assert (view.kind("/dir/x"), view.kind("/gone/deep"), view.names("/lib")) == ("", "", ["x", "y"])
    assert (view.read("/lib/y"), view.read_link("/lib")) == (b"two", "usr/lib")


def test_view_gives_recorded_owners(view: MergedView) -> None:
    entry = view.find("/etc/c")
    assert entry is not None
    node = view.make_node("/etc/c", entry)
    assert (node.uid, node.gid) == (5, 6)


def test_view_stays_inside(tmp_path) -> None:
    write_tree(tmp_path / "x", {"a": b"", "b": b"", "sub/b": b"", "out": "-> ../../../etc/passwd", "loop": "-> loop"})
    view = view_directory(tmp_path / "x")
    assert (view.names("/"), view.kind("/sub/b"), view.kind("/out")) == (["a", "b", "loop", "out", "sub"], "f", "")
    assert (view.kind("/loop"), view.resolve("/out")) == ("", "/etc/passwd")
