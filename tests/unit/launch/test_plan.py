# SPDX-License-Identifier: BSD-3-Clause
"""Tests of kedge.launch.plan."""

from __future__ import annotations

import base64
import json

from kedge.cluster.allocation import AllocatedNode
from kedge.cluster.launchers.program import StartRequest
from kedge.cluster.launchers.srun import SRUN
from kedge.launch.contracts import Contract
from kedge.launch.order import RankOrder
from kedge.launch.plan import LaunchPlan, LaunchShape


def make_plan(*command: str) -> LaunchPlan:
    shape = LaunchShape((AllocatedNode("n1"),), (2,))
    order = RankOrder("none", (2,), "n1", 20000, "id", command_at=2)
    return LaunchPlan(
        "srun", SRUN, shape, Contract.NONE, order, StartRequest(2, 1, 2), command, ("exec", "a.sif"), ("kedge",)
    )


def test_words_stand_behind_the_order() -> None:
    (process,) = make_plan("echo", "a b").list_processes()
    assert process.argv[-5:] == ("--", "exec", "a.sif", "echo", "a b")


def test_a_colon_is_hidden_from_launchers_which_begin_another_program_there() -> None:
    (process,) = make_plan("echo", ":", "b").list_processes()
    assert ":" not in process.argv
    assert process.argv[-2] == "--packed"
    assert json.loads(base64.urlsafe_b64decode(process.argv[-1]))[1:] == ["--", "exec", "a.sif", "echo", ":", "b"]
