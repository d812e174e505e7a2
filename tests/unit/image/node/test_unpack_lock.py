# SPDX-License-Identifier: BSD-3-Clause
"""The lock for unpacking: real processes, one of which makes what the others wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kedge.image.node.unpack_lock import UnpackLock, speaks_for_others
from tests.programs import read_program
from tests.wording import assert_reads

RANK = read_program("rank_that_unpacks")


def start(place: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RANK, str(place), str(seconds)], stdout=subprocess.PIPE, text=True)


def test_unpack_lock_one_works_and_the_others_find_it(tmp_path: Path) -> None:
    ranks = [start(tmp_path, 0.5) for _ in range(5)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks)
    assert "".join(said).count("makes it") == 1
    assert not list((tmp_path / "turns").iterdir()), "nothing is left"


def test_unpack_lock_a_long_wait_is_said_with_whom_it_is_for(tmp_path: Path) -> None:
    first = start(tmp_path, 3)
    assert first.stdout.readline() == "makes it\n"
    second = start(tmp_path, 0)
    assert_reads(second.communicate(timeout=60)[0], "image/waiting-process-unpacking-image", first.pid)
    first.communicate(timeout=60)


def test_unpack_lock_who_is_killed_at_work_is_replaced(tmp_path: Path) -> None:
    first = start(tmp_path, 600)
    assert first.stdout.readline() == "makes it\n"
    others = [start(tmp_path, 0) for _ in range(3)]
    first.kill()
    first.communicate()
    assert "".join(other.communicate(timeout=60)[0] for other in others).count("makes it") == 1


def test_unpack_lock_a_place_that_cannot_be_written_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "turns").write_text("")
    lock = UnpackLock(str(tmp_path), "image")
    lock.acquire(print)
    lock.release()


def test_unpack_lock_of_many_ranks_two_say_that_they_wait() -> None:
    assert [speaks_for_others({"SLURM_LOCALID": str(rank)}) for rank in range(4)] == [True, True, False, False]
    assert speaks_for_others({})
