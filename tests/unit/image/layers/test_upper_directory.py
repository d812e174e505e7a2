# SPDX-License-Identifier: BSD-3-Clause
"""Upper directories of overlays as layers: marks translated, attributes dropped, owners and modes kept."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from kedge.base.tree import Node, NodeKind, find, walk
from kedge.errors import UnsupportedFormat
from kedge.image.layers.owners import OwnerTable, RecordedOwner
from kedge.image.layers.tar_writer import write_layer
from kedge.image.layers.upper_directory import UpperOptions, is_of_fuse, read_upper


def make_whiteout(path: Path) -> None:
    try:
        os.mknod(path, 0o020600, 0)
    except PermissionError:
        pytest.skip("this kernel lets only root mark deleted files")


def set_mark(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as problem:
        pytest.skip(f"{name} cannot be set here: {problem.strerror}")


def names(root: Node) -> list[str]:
    return [os.fsdecode(path) for path, _ in walk(root)]


def test_upper_a_device_0_0_is_a_deletion(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    make_whiteout(tmp_path / "etc/motd")
    root, _ = read_upper(tmp_path)
    assert names(root) == ["etc", "etc/.wh.motd"]
    mark = find(root, b"etc/.wh.motd")
    assert (mark.kind, mark.size, mark.mode, mark.uid, mark.mtime) == (NodeKind.FILE, 0, 0o644, 0, 0)


@pytest.mark.parametrize("name", ["user.overlay.opaque", "trusted.overlay.opaque", "user.fuseoverlayfs.opaque"])
def test_upper_an_opaque_directory_hides_what_is_below(tmp_path: Path, name: str) -> None:
    (tmp_path / "new").mkdir()
    set_mark(tmp_path / "new", name, b"y")
    (tmp_path / "new/file").touch()
    root, _ = read_upper(tmp_path)
    assert names(root) == ["new", "new/.wh..wh..opq", "new/file"]
    assert not root.children[b"new"].xattrs


def test_upper_other_marks_are_dropped_and_attributes_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for name in ("user.overlay.origin", "user.overlay.impure", "user.fuseoverlayfs.origin", "user.kept"):
        set_mark(file, name, b"1")
    set_mark(tmp_path, "user.overlay.impure", b"y")
    root, _ = read_upper(tmp_path)
    assert root.children[b"file"].xattrs == ((b"user.kept", b"1"),)
    assert not root.xattrs


@pytest.mark.parametrize("name", ["user.overlay.redirect", "user.overlay.metacopy"])
def test_upper_contents_that_are_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "moved").mkdir()
    set_mark(tmp_path / "moved", name, b"/old")
    with pytest.raises(UnsupportedFormat, match=r"'/moved'"):
        read_upper(tmp_path)


def test_upper_what_nothing_is_below_needs_no_marks(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    set_mark(tmp_path / "new", "user.overlay.opaque", b"y")
    (tmp_path / "old").mkdir()
    set_mark(tmp_path / "old", "user.overlay.opaque", b"y")
    make_whiteout(tmp_path / "never")
    root, _ = read_upper(tmp_path, UpperOptions(is_below=lambda path: path == b"old"))
    assert names(root) == ["new", "old", "old/.wh..wh..opq"]


def test_upper_files_of_fuse_overlayfs_are_deletions(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/.wh.gone").touch()
    (tmp_path / "folder/.wh..wh..opq").touch()
    root, _ = read_upper(tmp_path, UpperOptions(has_whiteout_files=True))
    assert names(root) == ["folder", "folder/.wh..wh..opq", "folder/.wh.gone"]


def test_upper_files_of_programs_with_such_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".wh.gone").touch()
    with pytest.raises(UnsupportedFormat, match=r"'\.wh\.gone'"):
        read_upper(tmp_path)


def test_upper_paths_are_left_out(tmp_path: Path) -> None:
    for name in ("etc", "proc"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc/resolv.conf").touch()
    (tmp_path / "etc/hosts").touch()
    root, _ = read_upper(tmp_path, UpperOptions(left_out=frozenset((b"etc/resolv.conf", b"proc"))))
    assert names(root) == ["etc", "etc/hosts"]


def test_upper_owners_of_the_image_stay(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir(mode=0o775)
    (tmp_path / "mail").chmod(0o775)
    (tmp_path / "new").touch()
    owners = OwnerTable({b"mail": RecordedOwner(0, 8, 0o2775)})
    root, _ = read_upper(tmp_path, UpperOptions(owners=owners))
    mail, new = root.children[b"mail"], root.children[b"new"]
    assert (mail.uid, mail.gid, mail.mode) == (0, 8, 0o2775)
    assert (new.uid, new.gid) == (0, 0)


def test_upper_the_root_is_not_part_of_the_layer(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for keeps_root, expected in ((False, ["a"]), (True, [".", "a"])):
        root, source = read_upper(tmp_path, UpperOptions(keeps_root=keeps_root))
        out = io.BytesIO()
        write_layer(root, source, out, "none", holds_whiteouts=True)
        with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
            assert archive.getnames() == expected


def test_upper_hard_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    root, _ = read_upper(tmp_path)
    assert root.children[b"a"] is root.children[b"b"]


@pytest.mark.parametrize(("mode", "expected"), [(0o000, False), (0o1700, False), (0o700, True), (None, False)])
def test_upper_of_fuse_overlayfs_is_told_by_its_work_directory(
    tmp_path: Path, mode: int | None, expected: bool
) -> None:
    if mode is not None:
        (tmp_path / "work").mkdir()
        (tmp_path / "work").chmod(mode)
    assert is_of_fuse(tmp_path) == expected
