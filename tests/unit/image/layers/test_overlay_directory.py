# SPDX-License-Identifier: BSD-3-Clause
"""Layers as directories of overlays, and back: the same bytes; and what cannot be done is told."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from kedge.errors import CorruptImage
from kedge.image.layers import overlay_directory
from kedge.image.layers.overlay_directory import NoOverlayForm, unpack_overlay
from kedge.image.layers.tar_writer import write_layer
from kedge.image.layers.upper_directory import UpperOptions, read_upper
from tests.builders.layers import (
    device,
    fifo,
    file,
    folder,
    hard_link,
    layer,
    names_in,
    opaque,
    sources,
    symlink,
    whiteout,
)

ROUND = layer(
    folder("a", mode=0o700, mtime=100),
    opaque("a"),
    whiteout("a/gone"),
    file("a/one", b"1" * 3000, mode=0o4755, mtime=200),
    file("a/two", b"", mode=0o400),
    folder("b", mtime=5),
    symlink("b/link", "/etc/passwd"),
    hard_link("b/same", "a/one"),
    fifo("pipe"),
    file("x", b"x", xattrs={b"user.kept": b"1"}),
    whiteout("top"),
)


def unpack(tmp_path: Path, tar: bytes) -> Path:
    target = tmp_path / "layer"
    try:
        unpack_overlay(sources(tar)[0], target)
    except NoOverlayForm as problem:
        if "this file system" in str(problem) or "this host" in str(problem):
            pytest.skip(str(problem))
        raise
    return target


def pack(target: Path) -> bytes:
    root, source = read_upper(target, UpperOptions(all_root=os.getuid() != 0))
    out = io.BytesIO()
    write_layer(root, source, out, "none", holds_whiteouts=True)
    return out.getvalue()


def test_overlay_marks_are_those_of_the_kernel(tmp_path: Path) -> None:
    target = unpack(tmp_path, ROUND)
    gone = (target / "a/gone").lstat()
    assert stat.S_ISCHR(gone.st_mode)
    assert gone.st_rdev == 0
    assert os.getxattr(target / "a", "user.overlay.opaque") == b"y"
    assert names_in(target / "a") == ["gone", "one", "two"]
    assert (target / "b/same").samefile(target / "a/one")


def test_overlay_way_there_and_back_is_exact(tmp_path: Path) -> None:
    target = unpack(tmp_path, ROUND)
    once = pack(target)
    again = tmp_path / "again"
    again.mkdir()
    assert pack(unpack(again, once)) == once
    assert b".wh..wh..opq" in once


def test_overlay_a_layers_own_file_is_not_deleted_by_its_mark(tmp_path: Path) -> None:
    tar = layer(folder("d"), file("d/x", b"1"), whiteout("d"), file("f", b"2"), whiteout("f"))
    target = unpack(tmp_path, tar)
    assert (target / "f").read_bytes() == b"2"
    assert os.getxattr(target / "d", "user.overlay.opaque") == b"y"
    assert names_in(target / "d") == ["x"]


def test_overlay_marks_of_the_layer_itself_are_not_believed(tmp_path: Path) -> None:
    evil = {b"user.overlay.redirect": b"/etc", b"user.overlay.opaque": b"y", b"user.fuseoverlayfs.opaque": b"y"}
    target = unpack(tmp_path, layer(folder("d", xattrs=evil), device("fake", 0, 0), file("d/x", xattrs=evil)))
    assert stat.S_ISREG((target / "fake").lstat().st_mode)
    for path in (target / "d", target / "d/x"):
        assert not [name for name in os.listxattr(path) if "overlay" in name]


@pytest.mark.parametrize(
    "tar",
    [layer(file("implied/x", b"1")), layer(whiteout("implied/x")), layer(folder("d"), opaque("d/implied"))],
)
def test_overlay_directories_that_the_layer_does_not_describe_are_told(tmp_path: Path, tar: bytes) -> None:
    with pytest.raises(NoOverlayForm, match="implied"):
        unpack_overlay(sources(tar)[0], tmp_path / "layer")
    assert names_in(tmp_path) == []


def test_overlay_a_host_that_cannot_mark_deletions_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(overlay_directory.os, "mknod", refuse)
    with pytest.raises(NoOverlayForm, match="cannot mark deleted files"):
        unpack_overlay(sources(layer(whiteout("x")))[0], tmp_path / "layer")
    assert names_in(tmp_path) == []


def test_overlay_a_file_system_without_attributes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(overlay_directory.os, "setxattr", refuse)
    monkeypatch.setattr(overlay_directory.os, "getxattr", refuse)
    with pytest.raises(NoOverlayForm, match="cannot mark opaque directories"):
        unpack_overlay(sources(layer(folder("d"), opaque("d")))[0], tmp_path / "layer")
    assert names_in(tmp_path) == []


def test_overlay_links_into_lower_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptImage):
        unpack_overlay(sources(layer(hard_link("x", "etc/passwd")))[0], tmp_path / "layer")
    assert names_in(tmp_path) == []
