# SPDX-License-Identifier: BSD-3-Clause
"""The passing store, made where everybody may write, among those of other processes; and when a full cache is gone
around. Needs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import NoSpace
from kedge.image.workplace import Workplace, make_passing_store
from kedge.system.owned_names import machine_name
from kedge.system.settings import Settings


def abandoned_name(pid: int = 2**22 + 1) -> str:
    return f"kedge-store.{machine_name()}.{pid}.1.abcdef"


def test_passing_store_is_private_and_removes_what_killed_processes_left(tmp_path: Path) -> None:
    left = tmp_path / abandoned_name()
    (left / "blobs").mkdir(parents=True)
    place = make_passing_store(tmp_path)
    assert place.stat().st_mode & 0o777 == 0o700
    assert not left.exists()


def test_passing_store_is_not_stopped_by_a_link_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "kedge-store.x").symlink_to(tmp_path / "nowhere")
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / abandoned_name()).symlink_to(victim)
    assert make_passing_store(tmp_path).is_dir()
    assert victim.is_dir()


def test_passing_store_is_not_stopped_by_one_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.glob

    def glob(self: Path, pattern: str) -> Iterator[Path]:
        yield from real(self, pattern)
        yield self / abandoned_name(os.getpid())  # was there when the directory was read

    monkeypatch.setattr(Path, "glob", glob)
    assert make_passing_store(tmp_path).is_dir()


@pytest.mark.parametrize(("place", "goes_around"), [("", True), ("names/x", True), ("layers/x", False)])
def test_full_disk_is_gone_around_before_the_download_only(tmp_path: Path, place: str, *, goes_around: bool) -> None:
    workplace = Workplace(Settings.load({}, {"HOME": str(tmp_path), "KEDGE_CACHEDIR": str(tmp_path / "cache")}))
    problem = NoSpace("cannot write it", context={"path": str(tmp_path / "cache" / place)}, hint="make room")
    if goes_around:
        assert workplace.go_around_cache(problem).settings.disable_cache
    else:
        with pytest.raises(NoSpace):
            workplace.go_around_cache(problem)
