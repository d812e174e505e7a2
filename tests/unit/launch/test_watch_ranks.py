# SPDX-License-Identifier: BSD-3-Clause
"""Which rank failed first, by the order and the statuses of all that ended."""

from __future__ import annotations

import os
import time

from kedge.cluster.launchers.hydra import HYDRA
from kedge.launch.follow_output import OutputFollower, StartedRank
from kedge.launch.run_plan import EndedRank, RankWatch, describe_failure, find_culprit
from kedge.system.child_group import ChildGroup
from tests.builders.rows import each_row

KILLED = 137


def end(*ranks: tuple[int, float, int | None]) -> list[EndedRank]:
    return [EndedRank(StartedRank(rank, "here", 1), when, status) for rank, when, status in ranks]


@each_row(("ended", "is_alone", "rank"), [
    (end((2, 0.0, 3), (0, 0.01, KILLED), (1, 0.01, KILLED)), True, 2),
    (end((0, 0.0, KILLED), (2, 0.01, 139), (1, 0.01, KILLED)), True, 2),  # seen in the wrong order
    (end((2, 0.0, None), (0, 0.01, KILLED)), True, 2),
    (end((2, 0.0, KILLED), (0, 0.01, KILLED)), True, 2),
    (end((1, 0.0, 0), (2, 0.1, KILLED), (0, 0.2, KILLED)), True, 2),
    (end((1, 0.0, None), (2, 60.0, None), (0, 60.1, KILLED)), True, 2),
    (end((1, 0.0, 0), (2, 0.1, 7)), True, 2),
    (end((1, 0.0, None), (2, 0.1, None)), True, None),  # nothing says that one failed
    (end((2, 0.0, KILLED), (0, 0.01, KILLED)), False, None),  # the first may have been on another node
    (end((2, 0.0, 3), (0, 0.01, KILLED)), False, 2), ([], True, None),
])  # fmt: skip
def test_the_first_that_failed(ended: list[EndedRank], is_alone: bool, rank: int | None) -> None:
    found = find_culprit(ended, is_alone=is_alone)
    assert (found.rank.rank if found else None) == rank


@each_row(("ended", "rank", "status"), [
    (end((0, 0.0, KILLED), (2, 0.01, KILLED)), 2, 5),  # Hydra kills the one that aborts with the others
    (end((0, 0.0, None), (2, 0.01, KILLED)), 2, 5),
    (end((2, 0.0, 5), (0, 0.01, KILLED)), 2, 5),
    (end((1, 0.0, 139), (0, 0.01, KILLED)), 1, 139),  # what is printed may be wrong, this is not
    ([], 2, 5),
])  # fmt: skip
def test_a_rank_that_aborts_is_named_whichever_ends_first(ended: list[EndedRank], rank: int, status: int) -> None:
    follower = OutputFollower(HYDRA, lambda *_: None)
    follower.hear(0, True, b"[2] Abort(5) on node 2 (rank 2 in comm 0): application called MPI_Abort\n")
    failure = describe_failure(follower, find_culprit(ended, is_alone=True), 5)
    assert (failure.rank, failure.status, failure.how) == (rank, status, "")


def test_the_end_of_a_process_is_seen_with_its_status() -> None:
    group = ChildGroup(lambda *_: None)
    watch = RankWatch(group)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 0.2; exit 3"], os.environ)
    watch.add(StartedRank(4, os.uname().nodename, pid))
    watch.add(StartedRank(5, "elsewhere", pid))
    until = time.monotonic() + 30
    while watch.find_first(is_alone=False) is None and time.monotonic() < until:
        group.wait(0.1)
    first = watch.find_first(is_alone=False)
    watch.close()
    assert (first.rank.rank, first.status) == (4, 3)
