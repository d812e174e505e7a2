# SPDX-License-Identifier: BSD-3-Clause
"""Which rank failed first, and a connection of srun that goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kedge.cluster.launchers.hydra import HYDRA
from kedge.cluster.launchers.srun import list_trial_words, read_lost_node
from kedge.launch import run_plan
from kedge.launch.follow_output import OutputFollower, StartedRank
from kedge.launch.run_plan import EndedRank, LostNode, NodeWatch, RankWatch, describe_failure, find_culprit
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


# as Slurm 22.05 prints it after a node's death
SAID = """\
srun: error: Task launch for StepId=1.1 failed on node gpu02: Communication connection failure
srun: error: Application launch failed: Communication connection failure
srun: Job step aborted
"""


def test_lost_nodes_are_named() -> None:
    assert read_lost_node(SAID) == ("gpu02", "Communication connection failure")
    other = "srun: error: Task launch for StepId=1.1 failed on node gpu02: Invalid job credential\n"
    assert read_lost_node(other) is None
    assert read_lost_node("srun: unrecognized option '--overlap'\n") is None
    assert {"--nodes=3", "--ntasks=3", "--overlap"} < set(list_trial_words(3))


class Played:
    """Peers as they change, and an srun that names gpu02."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "srun").write_text(f"#!/bin/sh\necho asked >>{folder}/asked\nprintf '%s' '{SAID}' >&2\nexit 1\n")
        (folder / "srun").chmod(0o755)
        self.asked = folder / "asked"
        self.peers = frozenset({"a", "b"})
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setattr(run_plan, "list_peers", lambda _: self.peers)
        monkeypatch.setattr(run_plan, "_EVERY", 0.0)
        monkeypatch.setattr(run_plan, "_PATIENCE", 0.0)
        self.environ = {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_connection_that_goes_makes_kedge_ask_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path, monkeypatch)
    watch = NodeWatch(2, played.environ)
    assert watch.find_lost((1,)) is None
    played.peers = frozenset({"a", "b", "c"})  # more is no loss
    assert watch.find_lost((1,)) is None
    assert not played.asked.exists()
    played.peers = frozenset({"a", "c"})
    assert watch.find_lost((1,)) == LostNode("gpu02", "Communication connection failure")
    assert watch.find_lost((1,)) is None
    assert played.asked.read_text() == "asked\n"


def test_one_node_and_several_launchers_are_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path, monkeypatch)
    for watch, pids in ((NodeWatch(1, played.environ), (1,)), (NodeWatch(2, played.environ), (1, 2))):
        played.peers = frozenset({"a", "b"})
        assert watch.find_lost(pids) is None
        played.peers = frozenset()
        assert watch.find_lost(pids) is None
    assert not played.asked.exists()
