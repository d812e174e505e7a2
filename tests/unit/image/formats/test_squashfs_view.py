# SPDX-License-Identifier: BSD-3-Clause
"""A look into a SquashFS file shows what a look into the same tree as a directory shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.base.tree import copy_tree
from kedge.image.formats.squashfs.view import SquashView
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers.directory_tree import FolderOptions, read_folder
from kedge.system.views import DirectoryView

PATHS = ("/", "/bin", "/bin/sh", "/sh", "/out", "/loop", "/a/../bin/tool", "/none", "/bin/sh/x", "/up", "/data/big")


@pytest.fixture
def views(tmp_path: Path) -> Iterator[tuple[SquashView, DirectoryView]]:
    root = tmp_path / "root"
    for folder in ("bin", "a", "data"):
        (root / folder).mkdir(parents=True)
    (root / "bin/tool").write_bytes(b"#!tool")
    (root / "bin/tool").chmod(0o755)
    (root / "data/big").write_bytes(bytes(range(256)) * 2000)
    for name, target in {
        "bin/sh": "tool",
        "sh": "/bin/sh",
        "out": "/../../../etc/shadow-of-the-host",
        "loop": "loop",
        "up": "a/../bin",
    }.items():
        (root / name).symlink_to(target)
    path = tmp_path / "x.sqsh"
    tree, source = read_folder(root, FolderOptions())
    with path.open("w+b") as file, SquashWriter(file, SquashOptions()) as writer:
        writer.finish(copy_tree(tree, source, writer))
    with path.open("rb") as file, SquashView(file) as view:
        yield view, DirectoryView(str(root))


def test_squashfs_view_sees_what_a_folder_has(views: tuple[SquashView, DirectoryView]) -> None:
    packed, folder = views
    for path in PATHS:
        if path == "/loop":
            assert packed.kind(path) == ""
            continue
        assert packed.kind(path) == folder.kind(path), path
        assert packed.names(path) == folder.names(path), path
        assert packed.read(path) == folder.read(path), path
        assert packed.is_executable(path) == folder.is_executable(path), path
        assert packed.read_link(path) == folder.read_link(path), path
        assert packed.resolve(path) == folder.resolve(path), path


def test_squashfs_view_reads_pieces(views: tuple[SquashView, DirectoryView]) -> None:
    packed, folder = views
    assert packed.read("/data/big", 10, 200_000) == folder.read("/data/big", 10, 200_000)
    assert packed.read("/data/big", 10, 10_000_000) == b""
    assert packed.can_use("/data/big")
