# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a tree that changes: no name leads out of it, not even for a moment."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from pathlib import Path

import pytest

from kedge.container.mount_operations import OPEN_DIRECTORY, ContainerView, Maker, Walk, make_inside, open_inside
from kedge.system import libc
from tests.unit.system.test_views import make_tree

WRONG = (("/loop", "Too many levels"), ("/nothing", "No such file"), ("/etc/passwd/x", "Not a directory"))


@pytest.fixture
def view(tmp_path: Path) -> ContainerView:
    return ContainerView(os.open(make_tree(tmp_path), os.O_PATH | os.O_DIRECTORY))


def test_live_view_says_what_a_folder_view_says(view: ContainerView) -> None:
    assert [view.kind(path) for path in ("/etc", "/bin/sh", "/nothing", "/var/run")] == ["d", "f", "", ""]
    assert view.read("/absolute") == view.read("/climbing") == b"inside\n"
    assert (view.read("/etc/passwd", 3, 2), view.read("/etc"), view.names("/usr")) == (b"sid", None, ["bin"])
    assert view.names("/nothing") == []
    assert view.is_executable("/bin/sh")
    assert not view.is_executable("/etc/passwd")
    assert (view.read("/out"), view.read("/loop")) == (None, None)


@pytest.fixture(params=["openat2", "walk"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of today, and one before Linux 5.6."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if request.param == "walk":
        monkeypatch.setattr(libc, "open_in_root", refuse)


@contextlib.contextmanager
def swapping(root: Path):
    """The directory and the link of the tree change places all the time; at the end they are where they were."""
    has_ended = threading.Event()
    exchange, place = ctypes.CDLL(None).renameat2, os.open(root, OPEN_DIRECTORY)

    def swap() -> None:
        while not has_ended.is_set():
            for _ in range(2):
                assert exchange(place, b"folder", place, b"link", 2) == 0

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        yield
    finally:
        has_ended.set()
        worker.join()
        os.close(place)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a directory, and a link to a directory that is not in it."""
    root = make_tree(tmp_path)
    (tmp_path / "host").mkdir()
    (tmp_path / "host/file").write_text("outside\n")
    (root / "folder").mkdir()
    (root / "folder/file").write_text("inside\n")
    (root / "link").symlink_to(tmp_path / "host")
    return root


@pytest.mark.usefixtures("kernel")
def test_live_view_swapped_folders_lead_nowhere(tree: Path) -> None:
    view = ContainerView(os.open(tree, OPEN_DIRECTORY))
    with swapping(tree):
        assert {view.read("/folder/file") for _ in range(3000)} <= {b"inside\n", None}
    view.close()


@pytest.mark.usefixtures("kernel")
def test_open_inside_follows_links_inside(tmp_path: Path) -> None:
    root = os.open(make_tree(tmp_path), OPEN_DIRECTORY)
    for path in ("/absolute", "/climbing", "/etc/../absolute", "../../etc/passwd"):
        file = open_inside(root, path, os.O_RDONLY)
        assert os.read(file, 100) == b"inside\n"
        os.close(file)
    for path, reason in WRONG:
        with pytest.raises(OSError, match=reason):
            open_inside(root, path)
    os.close(root)


@pytest.mark.parametrize("shape", ["d", "f"])
def test_make_inside_swapped_folders_lead_nowhere(tree: Path, tmp_path: Path, shape: str) -> None:
    root = os.open(tree, OPEN_DIRECTORY)
    with swapping(tree):
        for number in range(1000):
            with contextlib.suppress(OSError):
                make_inside(root, f"/folder/new{number}/er", Maker(shape))
    os.close(root)
    assert [path.name for path in (tmp_path / "host").iterdir()] == ["file"]
    assert len(list((tree / "folder").glob("new*/er"))) > 10


def test_make_inside_makes_what_a_link_leads_to(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    (tree / "away").symlink_to("/etc/../made/../../here")
    (tree / "made").mkdir()
    root = os.open(tree, OPEN_DIRECTORY)
    make_inside(root, "/away/deep/file", Maker("f"))
    assert (tree / "here/deep/file").is_file()
    make_inside(root, "/away/deep", Maker("d"))  # is there
    for path, shape in (("/away/deep/file", "d"), ("/away/deep", "f")):
        with pytest.raises(FileExistsError):
            make_inside(root, path, Maker(shape))
    os.close(root)


def test_make_inside_permissions_are_exact_or_the_umasks(tmp_path: Path) -> None:
    root = os.open(tmp_path, OPEN_DIRECTORY)
    before = os.umask(0o077)
    try:
        make_inside(root, "/own", Maker("d", 0o755, is_exact=True))
        make_inside(root, "/users", Maker("d", 0o755))
    finally:
        assert os.umask(before) == 0o077
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("own", "users")] == [0o755, 0o700]
    os.close(root)


def test_walk_leaves_no_file_open(tree: Path) -> None:
    root = os.open(tree, OPEN_DIRECTORY)
    before = len(list(Path("/proc/self/fd").iterdir()))
    os.close(Walk(root).go("/folder/file", os.O_PATH))
    for path, reason in WRONG:
        with pytest.raises(OSError, match=reason):
            Walk(root).go(path, os.O_PATH)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.close(root)
