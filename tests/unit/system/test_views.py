# SPDX-License-Identifier: BSD-3-Clause
"""Looking into trees: links are followed inside the tree only, whatever an image makes of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kedge.system.views import DirectoryView, TableView, follow_links


def make_tree(folder: Path) -> Path:
    root = folder / "root"
    for name in ("etc", "usr/bin", "var"):
        (root / name).mkdir(parents=True)
    (root / "etc/passwd").write_text("inside\n")
    (root / "usr/bin/sh").write_text("#!x\n")
    (root / "usr/bin/sh").chmod(0o755)
    (root / "bin").symlink_to("usr/bin")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "climbing").symlink_to("../../../../../../etc/passwd")
    (root / "var/run").symlink_to("/run")
    (root / "loop").symlink_to("loop")
    (folder / "secret").write_text("outside\n")
    (root / "out").symlink_to("../secret")
    return root


def test_follow_links_gives_up_where_the_kernel_does() -> None:
    chain = {f"/{number}": f"{number + 1}" for number in range(50)}
    assert follow_links("/10", chain.get) == "/50"
    with pytest.raises(OSError, match="symbolic links"):
        follow_links("/9", chain.get)
    with pytest.raises(OSError, match="symbolic links"):
        follow_links("/a", {"/a": "a"}.get)


def test_view_links_stay_inside(tmp_path: Path) -> None:
    view = DirectoryView(str(make_tree(tmp_path)))
    assert view.read("/absolute") == b"inside\n"
    assert view.read("/climbing") == b"inside\n"
    assert view.read("/out") is None
    assert view.resolve("/out") == "/secret"
    assert view.resolve("/../../x") == "/x"


def test_view_kinds_and_names(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    os.mkfifo(root / "pipe")
    view = DirectoryView(str(root))
    assert [view.kind(path) for path in ("/etc", "/bin/sh", "/pipe", "/nothing", "/var/run")] == ["d", "f", "c", "", ""]
    assert view.read("/pipe") is None
    assert view.names("/usr") == ["bin"]
    assert view.names("/nothing") == []
    assert view.is_executable("/bin/sh")
    assert not view.is_executable("/etc/passwd")


def test_view_loop_is_an_error_not_an_endless_search(tmp_path: Path) -> None:
    view = DirectoryView(str(make_tree(tmp_path)))
    with pytest.raises(OSError, match="symbolic links"):
        view.resolve("/loop/x")
    assert view.kind("/loop") == ""
    assert view.read("/loop") is None


def test_view_reads_no_more_than_asked(tmp_path: Path) -> None:
    view = DirectoryView(str(make_tree(tmp_path)))
    assert view.read("/etc/passwd", 3) == b"ins"


def test_table_view_agrees_with_a_folder(tmp_path: Path) -> None:
    folder = DirectoryView(str(make_tree(tmp_path)))
    table = TableView(
        {
            "/etc/passwd": b"inside\n",
            "/usr/bin/sh": b"#!x\n",
            "/var": None,
            "/bin": "-> usr/bin",
            "/absolute": "-> /etc/passwd",
            "/var/run": "-> /run",
        }
    )
    for path in ("/etc/passwd", "/bin/sh", "/absolute", "/var/run/lock", "/nothing", "/usr"):
        assert table.kind(path) == folder.kind(path)
        assert table.resolve(path) == folder.resolve(path)
        assert table.read(path) == folder.read(path)


def test_strict_view_tells_what_is_closed_from_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_tree(tmp_path)
    view = DirectoryView(str(root), is_strict=True)
    os.mkfifo(root / "pipe")
    for path in ("/nothing", "/etc/passwd/x", "/loop", "/pipe"):
        assert view.read(path) is None
        assert view.names(path) == []

    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("kedge.system.views.os.open", refuse)
    assert DirectoryView(str(root)).read("/etc/passwd") is None
    with pytest.raises(PermissionError):
        view.read("/etc/passwd")
