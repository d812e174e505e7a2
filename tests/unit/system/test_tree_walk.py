# SPDX-License-Identifier: BSD-3-Clause
"""The walker, with and without openat2. Attacks on it: tests/hostile/test_wants_walks_to_follow_links.py."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from kedge.errors import FileProblem, KedgeError
from kedge.image.layers.directory_tree import read_folder
from kedge.system import libc
from kedge.system.tree_walk import ConfinedTree, measure_files, walk_tree
from tests.unit.image.layers.test_directory_tree import ordinary_user


@pytest.fixture(params=[0, errno.ENOSYS, errno.EPERM], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with openat2, an old one, and one whose calls are filtered."""

    def refuse(*_arguments: object) -> int:
        raise OSError(request.param, os.strerror(request.param))

    if request.param:
        monkeypatch.setattr(libc, "open_beneath", refuse)


@pytest.fixture
def tree(tmp_path: Path) -> ConfinedTree:
    root = tmp_path / "tree"
    (root / "d/e").mkdir(parents=True)
    (root / "d/e/file").write_bytes(b"0123456789")
    (root / "d/link").symlink_to("e")
    (root / "out").symlink_to(tmp_path)
    (tmp_path / "beside").write_bytes(b"beside")
    os.mkfifo(root / "pipe")
    return ConfinedTree(os.fsencode(root))


def list_open() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


def test_walker_finds_and_reads(tree: ConfinedTree) -> None:
    assert tree.read(b"d/e/file", 4) == b"0123"
    assert tree.read(b"d/e/file", 100, 8) == b"89"
    assert tree.read_link(b"d/link") == b"e"
    assert tree.find(b"d/e/file").st_size == 10
    assert tree.find(b"") == Path(os.fsdecode(tree.path)).stat()
    with tree.open_folder(b"d") as folder:
        assert [name for name, _ in folder.entries()] == [b"e", b"link"]
        assert [name for name, _ in folder.entries()] == [b"e", b"link"]
        assert folder.read_link(b"link") == b"e"


@pytest.mark.parametrize("path", [b"out/beside", b"d/link/file", b"d/link", b"pipe", b"missing", b"d"])
def test_walker_reads_files_only_and_follows_nothing(tree: ConfinedTree, path: bytes) -> None:
    assert tree.read(path, 100) is None


def test_link_in_place_of_a_directory_is_an_error(tree: ConfinedTree) -> None:
    for path in (b"out", b"d/link", b"out/tree"):
        with pytest.raises(FileProblem, match="changed while it was being read"):
            tree.open_folder(path).entries()


def test_what_was_listed_is_recognised(tree: ConfinedTree) -> None:
    known, other = tree.find(b"d/e"), tree.find(b"d")
    tree.open_folder(b"d/e", known).close()
    for attempt in (
        lambda: tree.open_folder(b"d/e", other),
        lambda: tree.open_file(b"d/e/file", other),
        lambda: tree.change_mode(b"d/e", other, 0o755, 0o700),
    ):
        with pytest.raises(FileProblem, match="changed while it was being read"):
            attempt()
    mode = known.st_mode & 0o7777
    assert tree.change_mode(b"d/e", known, 0o123, 0o700) is None
    assert tree.find(b"d/e").st_mode == known.st_mode
    changed = tree.change_mode(b"d/e", known, mode, 0o711)
    assert changed.st_mode & 0o777 == 0o711


def test_closed_file_is_opened_for_its_owner_and_closed_again() -> None:
    with ordinary_user() as place:
        (place / "file").write_bytes(b"x")
        (place / "file").chmod(0)
        tree = ConfinedTree(os.fsencode(place))
        assert tree.read(b"file", 1) is None
        with os.fdopen(tree.open_file(b"file", tree.find(b"file")), "rb") as file:
            assert file.read() == b"x"
        assert tree.find(b"file").st_mode & 0o777 == 0


def test_walk_passes_over_what_is_closed_or_gone() -> None:
    with ordinary_user() as place:
        for name in ("a/one", "closed/two", "gone/three", "z/four"):
            (place / name).parent.mkdir()
            (place / name).write_bytes(b"12345")
        (place / "closed").chmod(0)
        seen = []
        for folder, entries in walk_tree(place):
            if not folder.path:
                shutil.rmtree(place / "gone")
            seen += [folder.join(name) for name, status in entries if status.st_size == 5]
        assert sorted(seen) == [b"a/one", b"z/four"]
        assert measure_files(place) == 10
        assert measure_files(place / "missing") == 0


def test_trees_deeper_than_paths_may_be_long_are_refused_and_no_descriptor_stays(tmp_path: Path) -> None:
    before = list_open()
    name = "d" * 200
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):  # 8 KB
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)
    assert [len(folder.path) for folder, _ in walk_tree(tmp_path)][-1] == 20 * 201 - 1
    with pytest.raises(FileProblem, match="name too long"):
        read_folder(tmp_path)
    assert list_open() == before
    shutil.rmtree(tmp_path / name)


@pytest.mark.parametrize("name", ["missing", "tree/d/e/file"])
def test_tree_must_be_a_directory(tree: ConfinedTree, tmp_path: Path, name: str) -> None:
    del tree
    with pytest.raises(KedgeError):
        ConfinedTree(os.fsencode(tmp_path / name))


def test_own_name_may_be_a_link_or_not(tree: ConfinedTree, tmp_path: Path) -> None:
    (tmp_path / "name").symlink_to("tree")
    assert ConfinedTree(os.fsencode(tmp_path / "name")).find(b"") == tree.find(b"")
    with pytest.raises(KedgeError):
        ConfinedTree(os.fsencode(tmp_path / "name"), follows=False)
