# SPDX-License-Identifier: BSD-3-Clause
"""A connection of srun that goes: Slurm is asked once, and only an answer that names a node counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.launchers.srun import list_trial_words, read_lost_node
from kedge.launch import run_plan
from kedge.launch.run_plan import LostNode, NodeWatch

# as Slurm 22.05 prints it after a node's death
SAID = """\
srun: error: Task launch for StepId=1.1 failed on node gpu02: Communication connection failure
srun: error: Application launch failed: Communication connection failure
srun: Job step aborted
"""


def test_lost_node_is_named() -> None:
    assert read_lost_node(SAID) == ("gpu02", "Communication connection failure")
    other = "srun: error: Task launch for StepId=1.1 failed on node gpu02: Invalid job credential\n"
    assert read_lost_node(other) is None
    assert read_lost_node("srun: unrecognized option '--overlap'\n") is None


def test_trial_asks_every_node_for_one_task() -> None:
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
