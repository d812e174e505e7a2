# SPDX-License-Identifier: BSD-3-Clause
"""Directories that survive builds: shared, locked or private, listed and removed with the rest of the cache."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kedge.errors import FileProblem
from kedge.image.store.eviction import ItemKind
from kedge.image.store.store import Store


def test_mounts_what_is_in_them_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.mounts.open("/root/.cache/pip", mode=0o770) as mount:
        assert mount.is_new
        assert mount.path.stat().st_mode & 0o777 == 0o770
        (mount.path / "wheel").write_bytes(b"w" * 500)
    with store.mounts.open("/root/.cache/pip") as mount:
        assert not mount.is_new
        assert (mount.path / "wheel").read_bytes() == b"w" * 500
    with store.mounts.open("other") as mount:
        assert mount.is_new
    items = {item.name: item.size for item in store.entries() if item.kind is ItemKind.MOUNT}
    assert items == {"/root/.cache/pip": 500, "other": 0}


def test_mounts_are_the_users_own(tmp_path: Path) -> None:
    store = Store(tmp_path, shared=True)
    with store.mounts.open("x") as mount:
        assert mount.path.parent.parent.stat().st_mode & 0o777 == 0o700
    (tmp_path / "mounts" / str(os.getuid())).chmod(0o777)
    with pytest.raises(FileProblem, match="others may write to it"), store.mounts.open("x"):
        pass


def test_mounts_shared_is_for_all_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.mounts.open("x") as first, store.mounts.open("x") as second:
        assert first.path == second.path


def test_mounts_private_gives_the_second_another(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.mounts.open("x", "private") as first:
        (first.path / "mark").touch()
        with store.mounts.open("x", "private") as second:
            assert second.is_new
            assert second.path != first.path
    with store.mounts.open("x", "private") as third:
        assert third.path == first.path
        assert (third.path / "mark").exists()


def test_mounts_locked_is_for_one_after_the_other(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def build(number: int) -> None:
        with Store(tmp_path).mounts.open("x", "locked"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.05)
            inside.remove(number)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1, 1, 1, 1]


def test_mounts_are_evicted_unless_in_use(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100)
    with store.mounts.open("x") as mount:
        (mount.path / "deep").mkdir()
        (mount.path / "deep/file").write_bytes(b"x" * 500)
        (mount.path / "deep").chmod(0o500)
    with store.mounts.open("x"):
        assert store.evict() == []
    assert [item.name for item in store.evict()] == ["x"]
    assert not mount.path.exists()
    assert not list((tmp_path / "tmp").iterdir())


def test_mounts_are_cleaned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.mounts.open("x"):
        assert store.clean([ItemKind.MOUNT]) == []
    assert store.clean([ItemKind.MOUNT], unused_for=60) == []
    assert [item.name for item in store.clean([ItemKind.MOUNT])] == ["x"]
    assert store.usage()[ItemKind.MOUNT].count == 0


def test_mounts_what_a_killed_build_left_aside_is_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.layout.folder("tmp")
    left = tmp_path / "tmp" / "evict.000000000000.1.1.abcdef"
    (left / "data").mkdir(parents=True)
    os.utime(left, (1, 1))
    store.sweep()
    assert not left.exists()
