# SPDX-License-Identifier: BSD-3-Clause
"""Folders on disk as trees. Runs as anybody; permissions are tested where root does not walk through them."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind, find
from kedge.errors import FileProblem
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.system.confined_paths import remove_tree
from tests.requirements import require_root
from tests.unit.image.layers.test_sandbox import Notes


def make_folder(place: Path) -> Path:
    root = place / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/f").write_bytes(b"content")
    (root / "d/f").chmod(0o4751)
    os.utime(root / "d/f", ns=(0, 5_900_000_000))
    (root / "empty").write_bytes(b"")
    os.link(root / "d/f", root / "hard")
    (root / "s").symlink_to("../outside")
    os.mkfifo(root / "p")
    return root


def test_folder_is_read_with_kinds_modes_times_and_links(tmp_path: Path) -> None:
    tree, source = read_folder(make_folder(tmp_path))
    assert list(tree.children) == [b"d", b"empty", b"hard", b"p", b"s"]
    node = find(tree, b"d/f")
    assert node is tree.children[b"hard"]
    assert (node.kind, node.mode, node.mtime, node.size, node.uid) == (NodeKind.FILE, 0o4751, 5, 7, os.geteuid())
    assert b"".join(source.chunks(node)) == b"content"
    assert list(source.chunks(tree.children[b"empty"])) == []
    assert (tree.children[b"s"].kind, tree.children[b"s"].target) == (NodeKind.SYMLINK, b"../outside")
    assert tree.children[b"p"].kind is NodeKind.FIFO


def test_folder_can_be_given_to_root(tmp_path: Path) -> None:
    root = make_folder(tmp_path)
    if os.geteuid() == 0:
        os.chown(root / "d", 7, 8)
        tree, _ = read_folder(root)
        assert (tree.children[b"d"].uid, tree.children[b"d"].gid) == (7, 8)
    tree, _ = read_folder(root, FolderOptions(all_root=True))
    assert (tree.children[b"d"].uid, tree.children[b"d"].gid) == (0, 0)


def test_folder_reads_attributes(tmp_path: Path) -> None:
    root = make_folder(tmp_path)
    try:
        os.setxattr(root / "empty", "user.b", b"2")
        os.setxattr(root / "empty", "user.a", b"1")
    except OSError:
        pytest.skip("this file system has no user attributes")
    tree, _ = read_folder(root)
    assert tree.children[b"empty"].xattrs == ((b"user.a", b"1"), (b"user.b", b"2"))


@pytest.mark.root
def test_folder_leaves_labels_of_this_machine_out(tmp_path: Path) -> None:
    require_root()
    root = make_folder(tmp_path)
    try:
        for name in ("security.selinux", "security.other"):
            os.setxattr(root / "empty", name, b"a:b:c\0")
    except OSError as problem:
        pytest.skip(f"no security attributes on this file system: {problem}")
    tree, _ = read_folder(root)
    assert tree.children[b"empty"].xattrs == ((b"security.other", b"a:b:c\0"),)


def test_folder_leaves_sockets_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_folder(tmp_path)
    monkeypatch.chdir(root)
    notes = Notes()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        tree, _ = read_folder(root, FolderOptions(progress=notes))
    assert b"sock" not in tree.children
    assert len(notes.notes) == 1


@pytest.mark.parametrize("change", ["content", "replaced", "link", "gone", "grows"])
def test_folder_notices_files_that_change(tmp_path: Path, change: str) -> None:
    root = make_folder(tmp_path)
    path = root / "other"
    path.write_bytes(b"a" * (2 << 20))
    tree, source = read_folder(root)
    chunks = source.chunks(tree.children[b"other"])
    if change == "grows":
        next(chunks)
        with path.open("ab") as file:
            file.write(b"more")
    elif change == "content":
        path.write_bytes(b"short")
    else:
        path.unlink()
        if change == "replaced":
            path.write_bytes(b"a" * (2 << 20))
            os.utime(path, ns=(1, 1))
        elif change == "link":
            path.symlink_to("d/f")
    with pytest.raises(FileProblem, match="other"):
        list(chunks)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_folder_must_be_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileProblem):
        read_folder(tmp_path / name)


@contextlib.contextmanager
def ordinary_user() -> Iterator[Path]:
    """A directory of an ordinary user, who root becomes for a while: root can read everything."""
    place = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(place, 1501, 1501)
        os.seteuid(1501)
    try:
        yield place
    finally:
        if is_root:
            os.seteuid(0)
        remove_tree(place)


def test_folder_names_what_cannot_be_read() -> None:
    with ordinary_user() as place:
        root = make_folder(place)
        (root / "secret").write_bytes(b"x")
        (root / "secret").chmod(0)
        tree, source = read_folder(root)
        with pytest.raises(FileProblem, match=r"secret: Permission denied"):
            list(source.chunks(tree.children[b"secret"]))
        (root / "closed").mkdir(mode=0)
        with pytest.raises(FileProblem, match=r"closed: Permission denied"):
            read_folder(root)
