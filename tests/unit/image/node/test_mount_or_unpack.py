# SPDX-License-Identifier: BSD-3-Clause
"""Where a root comes from: which way is chosen for which image, and what is said where none can be had."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kedge.container import mounting as mount_or_unpack
from kedge.container.mount_operations import LOWER, OLD, BindMount
from kedge.container.mounts import squashfuse
from kedge.container.options import RunOptions
from kedge.errors import MountFailed
from kedge.image.image_file import ImageFile
from kedge.system import libc
from kedge.system.libc import NFS_SUPER_MAGIC
from tests.builders.rows import each_row

USER = 1000


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"KEDGE_NODEDIR": str(tmp_path / "node"), "HOME": str(tmp_path)}


@pytest.fixture
def with_squashfuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squashfuse, "can_use_fuse", lambda: "")
    monkeypatch.setattr(squashfuse, "find_squashfuse", lambda: ("/usr/bin/squashfuse_ll", True))
    monkeypatch.setattr(squashfuse, "shows_owner", lambda program: False)


def make_image(size: int = 1 << 20, kind: str = "sif", file_system: str = "squashfs") -> ImageFile:
    image = ImageFile("/images/a.sif", kind)
    image.size, image.offset, image.file_system, image.state = size, 4096, file_system, "sif-1"
    return image


def choose(image: ImageFile, environ: dict[str, str], uid: int = USER, **options: Any) -> mount_or_unpack.Root:
    return mount_or_unpack.choose_root(image, RunOptions(**options), environ, uid)


def test_roots_folder_is_its_own_root(environ: dict[str, str]) -> None:
    root = choose(ImageFile("/images/box", "folder"), environ)
    assert (root.way, root.folder) == ("folder", "/images/box")
    assert mount_or_unpack.plan_root(ImageFile("/images/box", "folder"), root) == [
        BindMount(OLD + "/images/box", LOWER, 6)
    ]


@pytest.mark.usefixtures("with_squashfuse")
def test_roots_small_image_is_unpacked_and_a_large_one_mounted(environ: dict[str, str]) -> None:
    assert choose(make_image(), environ).way == "unpack"
    large = choose(make_image(mount_or_unpack.UNPACK_LIMIT + 1), environ)
    assert (large.way, large.program) == ("squashfuse", "/usr/bin/squashfuse_ll")
    assert choose(make_image(3 << 20), {**environ, "KEDGE_UNPACK_LIMIT": "2"}).way == "squashfuse"


@pytest.mark.usefixtures("with_squashfuse")
@each_row("options", [{"writable_tmpfs": True}, {"fakeroot": True}, {"overlay": ["/x"]}])
def test_roots_what_is_changed_is_unpacked(environ: dict[str, str], options: dict[str, Any]) -> None:
    assert choose(make_image(mount_or_unpack.UNPACK_LIMIT + 1), environ, **options).way == "unpack"
    assert choose(make_image(), environ, root="squashfuse", **options).way == "unpack"


@pytest.mark.usefixtures("with_squashfuse")
def test_roots_squashfuse_that_shows_files_as_ours_takes(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(squashfuse, "shows_owner", lambda program: True)
    assert choose(make_image(mount_or_unpack.UNPACK_LIMIT + 1), environ, writable_tmpfs=True).way == "squashfuse"


@pytest.mark.usefixtures("with_squashfuse")
def test_roots_overlay_is_unpacked_where_it_is_written_above(environ: dict[str, str]) -> None:
    image = make_image(kind="squashfs")
    assert mount_or_unpack.choose_overlay(image, RunOptions(userns=True), environ, is_written=True).way == "unpack"
    assert mount_or_unpack.choose_overlay(image, RunOptions(userns=True), environ, is_written=False).way == "squashfuse"


@pytest.mark.usefixtures("with_squashfuse")
def test_roots_nothing_is_unpacked_into_memory(environ: dict[str, str]) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    assert choose(make_image(), {**environ, "KEDGE_NODEDIR": "/dev/shm/kedge-roots-test"}).way == "squashfuse"


@pytest.mark.usefixtures("with_squashfuse")
def test_roots_nothing_is_unpacked_onto_a_network(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libc, "file_system_type", lambda path: NFS_SUPER_MAGIC)
    assert choose(make_image(), environ).way == "squashfuse"
    assert choose(make_image(), environ, root="unpack").way == "unpack"


def test_roots_without_fuse_everything_is_unpacked(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squashfuse, "can_use_fuse", lambda: "/dev/fuse does not exist")
    root = choose(make_image(mount_or_unpack.UNPACK_LIMIT + 1), environ)
    assert root.way == "unpack"
    assert "/dev/fuse does not exist" in root.reason
    with pytest.raises(
        MountFailed, match="--root-from squashfuse does not work on this node: /dev/fuse does not exist"
    ):
        choose(make_image(), environ, root="squashfuse")


def test_roots_kernel_is_for_root(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_or_unpack, "check_kernel_mount", lambda: "")
    assert choose(make_image(), environ, 0).way == "loop"
    assert choose(make_image(), environ, 0, root="unpack").way == "unpack"
    monkeypatch.setattr(mount_or_unpack, "check_kernel_mount", lambda: "no access to /dev/loop-control")
    with pytest.raises(MountFailed, match="loop-control"):
        choose(make_image(), environ, 0, root="kernel")


def test_roots_ext3_image_is_mounted(environ: dict[str, str]) -> None:
    image = make_image(kind="ext3", file_system="ext3")
    root = choose(image, environ)
    assert mount_or_unpack.plan_root(image, root)[0].kind == "fuse2fs"
