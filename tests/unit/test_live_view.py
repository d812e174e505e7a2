# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a tree that changes: no name leads out of it, not even for a moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kedge.runtime.live_view import LiveView
from tests.unit.test_views import make_tree


@pytest.fixture
def view(tmp_path: Path) -> LiveView:
    return LiveView(os.open(make_tree(tmp_path), os.O_PATH | os.O_DIRECTORY))


def test_live_view_says_what_a_folder_view_says(view: LiveView) -> None:
    assert [view.kind(path) for path in ("/etc", "/bin/sh", "/nothing", "/var/run")] == ["d", "f", "", ""]
    assert view.read("/absolute") == view.read("/climbing") == b"inside\n"
    assert view.read("/etc/passwd", 3, 2) == b"sid"
    assert view.read("/etc") is None
    assert view.names("/usr") == ["bin"]
    assert view.names("/nothing") == []
    assert view.is_executable("/bin/sh")
    assert not view.is_executable("/etc/passwd")


def test_live_view_links_stay_inside(view: LiveView) -> None:
    assert view.read("/out") is None
    assert view.read("/loop") is None


def test_live_view_swapped_folders_lead_nowhere(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    (tmp_path / "host").mkdir()
    (tmp_path / "host/file").write_text("outside\n")
    (root / "folder").mkdir()
    (root / "folder/file").write_text("inside\n")
    (root / "link").symlink_to(tmp_path / "host")
    view, has_ended = LiveView(os.open(root, os.O_PATH | os.O_DIRECTORY)), threading.Event()

    def swap() -> None:
        while not has_ended.is_set():
            (root / "folder").rename(root / "kept")
            (root / "link").rename(root / "folder")
            (root / "folder").rename(root / "link")
            (root / "kept").rename(root / "folder")

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        assert {view.read("/folder/file") for _ in range(3000)} <= {b"inside\n", None}
    finally:
        has_ended.set()
        worker.join()
