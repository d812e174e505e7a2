# SPDX-License-Identifier: BSD-3-Clause
"""How many processes start on which node, and the words that start them."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.allocation import AllocatedNode, Allocation
from kedge.cluster.launchers.program import StartRequest
from kedge.cluster.launchers.srun import SRUN
from kedge.errors import LaunchRefused
from kedge.launch.contracts import Contract
from kedge.launch.order import RankOrder
from kedge.launch.plan import LaunchPlan, LaunchShape, choose_shape
from tests.builders.rows import each_row


def allocate(*tasks: int) -> Allocation:
    return Allocation("slurm", tuple(AllocatedNode(f"n{index}", count) for index, count in enumerate(tasks, 1)))


@each_row(("wanted", "tasks"), [
    ({}, (2, 2, 1)), ({"nodes": 2}, (2, 2)), ({"tasks_per_node": 4}, (4, 4, 4)), ({"usual": 1}, (1, 1, 1)),
    ({"tasks": 5}, (2, 2, 1)), ({"tasks": 6}, (2, 2, 2)), ({"tasks": 4}, (2, 1, 1)), ({"tasks": 2}, (1, 1)),
    ({"tasks": 3}, (1, 1, 1)), ({"tasks": 7}, (3, 2, 2)), ({"tasks": 3, "nodes": 2}, (2, 1)),
    ({"tasks": 8, "tasks_per_node": 4, "nodes": 2}, (4, 4)), ({"tasks": 1, "nodes": 1}, (1,)),
])  # fmt: skip
def test_shape(wanted: dict[str, int], tasks: tuple[int, ...]) -> None:
    shape = choose_shape(allocate(2, 2, 1), **wanted)
    assert shape.tasks == tasks
    assert (shape.size, shape.node_count) == (sum(tasks), len(tasks))
    assert shape.per_node == (tasks[0] if len(set(tasks)) == 1 else 0)


def test_shape_is_even_and_refuses_what_contradicts() -> None:
    assert choose_shape(allocate(4, 4), tasks=5).tasks == (3, 2)
    assert choose_shape(allocate(4, 4), tasks=4).tasks == (2, 2)
    assert choose_shape(allocate(3, 1, 1), tasks=5).tasks == (3, 1, 1)
    assert choose_shape(allocate(2, 8, 8), tasks=11).tasks == (2, 5, 4)
    assert choose_shape(allocate(8, 1), tasks=8).tasks == (7, 1)
    with pytest.raises(LaunchRefused, match="the job has 3 nodes, not 4"):
        choose_shape(allocate(1, 1, 1), nodes=4)
    with pytest.raises(LaunchRefused, match="the job has 1 node, not 2"):
        choose_shape(allocate(1), nodes=2)
    with pytest.raises(LaunchRefused, match="5 tasks are not 2 on each of 2 nodes"):
        choose_shape(allocate(2, 2), tasks=5, tasks_per_node=2)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=9), st.integers(1, 99))
def test_shape_deals_all(tasks: list[int], wanted: int) -> None:
    shape = choose_shape(allocate(*tasks), tasks=wanted)
    assert shape.size == wanted
    assert min(shape.tasks) >= 1
    fits = all(count <= most for count, most in zip(shape.tasks, tasks, strict=False))
    assert fits or max(shape.tasks) - min(shape.tasks) <= 1
    ranks = list(shape.list_ranks())
    assert [rank.node_rank for rank in ranks] == sorted(rank.node_rank for rank in ranks)


def make_plan(*command: str) -> LaunchPlan:
    shape = LaunchShape((AllocatedNode("n1"),), (2,))
    order = RankOrder("none", (2,), "n1", 20000, "id", command_at=2)
    return LaunchPlan(
        "srun", SRUN, shape, Contract.NONE, order, StartRequest(2, 1, 2), command, ("exec", "a.sif"), ("kedge",)
    )


def test_words_stand_behind_the_order() -> None:
    (process,) = make_plan("echo", "a b").list_processes()
    assert process.argv[-5:] == ("--", "exec", "a.sif", "echo", "a b")
    (process,) = make_plan("echo", ":", "b").list_processes()
    assert ":" not in process.argv
    assert process.argv[-2] == "--packed"
    assert json.loads(base64.urlsafe_b64decode(process.argv[-1]))[1:] == ["--", "exec", "a.sif", "echo", ":", "b"]
