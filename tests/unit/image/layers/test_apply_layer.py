# SPDX-License-Identifier: BSD-3-Clause
"""Layers applied to plain directories: deletions executed, kinds replaced, links not followed, the rest untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.errors import HostileImage
from kedge.image.layers.apply_layer import apply_layer
from tests.builders.layers import file, folder, hard_link, layer, names_in, opaque, sources, symlink, whiteout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    for name in ("etc/deep", "usr"):
        (top / name).mkdir(parents=True)
    for name in ("etc/motd", "etc/deep/one", "usr/tool"):
        (top / name).write_text(name)
    (top / "lib").symlink_to("usr")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").write_text("precious")
    (top / "out").symlink_to("../outside")
    return top


def apply(tree: Path, *entries: bytes) -> None:
    apply_layer(tree, sources(layer(*entries))[0])
    assert names_in(tree.parent) == ["outside", "tree"], "the spool was left"
    assert (tree.parent / "outside/precious").read_text() == "precious"


def test_apply_deletes(tree: Path) -> None:
    apply(tree, whiteout("etc"), whiteout("lib"), whiteout("never"))
    assert names_in(tree) == ["out", "usr"]


def test_apply_empties_opaque_directories(tree: Path) -> None:
    apply(tree, folder("etc", mode=0o711), opaque("etc"), file("etc/new", b"n"))
    assert names_in(tree / "etc") == ["new"]
    assert (tree / "etc").stat().st_mode & 0o7777 == 0o711


def test_apply_merges_directories(tree: Path) -> None:
    apply(tree, folder("etc", mode=0o700, mtime=9), file("etc/motd", b"new"), whiteout("etc/deep"), file("etc/x"))
    assert names_in(tree / "etc") == ["motd", "x"]
    assert (tree / "etc/motd").read_bytes() == b"new"
    assert (tree / "etc").stat().st_mtime == 9


def test_apply_replaces_kinds(tree: Path) -> None:
    apply(tree, file("etc", b"a file"), folder("usr"), folder("usr/tool"), file("usr/tool/x"), symlink("lib", "usr2"))
    assert (tree / "etc").read_bytes() == b"a file"
    assert names_in(tree / "usr/tool") == ["x"]
    assert (tree / "lib").readlink() == Path("usr2")


def test_apply_a_directory_replaces_a_link_and_nothing_behind_it(tree: Path) -> None:
    apply(tree, folder("out"), file("out/precious", b"mine"), whiteout("out/other"))
    assert (tree / "out/precious").read_bytes() == b"mine"
    assert not (tree / "out").is_symlink()


def test_apply_deletions_do_not_follow_links(tree: Path) -> None:
    with pytest.raises(HostileImage, match="not a directory"):
        apply(tree, whiteout("out/precious"))
    assert (tree.parent / "outside/precious").exists()
    with pytest.raises(HostileImage, match="not a directory"):
        apply(tree, file("out/new", b"x"))
    with pytest.raises(HostileImage, match="not a directory"):
        apply(tree, opaque("out"))
    assert names_in(tree.parent / "outside") == ["precious"]


def test_apply_directories_that_the_layer_does_not_name_stay_as_they_are(tree: Path) -> None:
    (tree / "etc").chmod(0o751)
    before = [(tree / name).stat().st_mtime_ns for name in (".", "etc", "etc/deep")]
    apply(tree, whiteout("etc/deep/one"), file("etc/deep/two", b"2"))
    assert [(tree / name).stat().st_mtime_ns for name in (".", "etc", "etc/deep")] == before
    assert (tree / "etc").stat().st_mode & 0o777 == 0o751
    assert names_in(tree / "etc/deep") == ["two"]


def test_apply_keeps_hard_links(tree: Path) -> None:
    apply(tree, file("a", b"1"), hard_link("b", "a"))
    assert (tree / "a").samefile(tree / "b")


def test_apply_enters_directories_that_modes_forbid(tree: Path) -> None:
    (tree / "etc").chmod(0o000)
    apply(tree, folder("etc", mode=0o100), file("etc/new", b"x"))
    assert (tree / "etc").stat().st_mode & 0o777 == 0o100
    (tree / "etc").chmod(0o755)
    assert names_in(tree / "etc") == ["deep", "motd", "new"]
