# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of jobs of Slurm, by the variables of real ones."""

from __future__ import annotations

import pytest

from kedge.cluster.allocation import Allocation, ThisHost
from kedge.cluster.schedulers.current_job import find_allocation
from kedge.errors import LaunchRefused
from tests.builders.recorded_jobs import SLURM, read_record
from tests.builders.rows import each_row, with_rows


def read(name: str, host: str = "", gpus: int = 0, **changes: str) -> Allocation:
    environ = read_record(SLURM[name]) | changes
    return find_allocation(environ, str, ThisHost(host or environ.get("SLURMD_NODENAME", "head"), 64, gpus))


@with_rows(
    ("batch", "2 2 2", "2 2 2", "0 0 0"),
    ("batch_uneven", "3 1 1", "3 1 1", "0 0 0"),
    *(("exclusive", "8 8", "8 8", "4 4"), ("cpus_per_task", "1 1", "4 4", "0 0"), ("gres", "2 2", "2 2", "2 2")),
    *(("gpus_per_node", "2 2", "2 2", "2 2"), ("gpus_per_task", "2 2", "2 2", "2 2")),
    *(("gpus", "1 1", "1 1", "3 1"), ("task_gres", "2 2", "2 2", "2 2")),
    *(("task_gpus_per_task", "2 2", "2 2", "2 2"), ("task_gpus", "2 2", "2 2", "3 1")),
    *(("task_uneven", "3 1 1", "3 1 1", "0 0 0"), ("task_on_some_nodes", "4 1 1", "4 1 1", "0 0 0")),
    *(("shell_in_job", "1 1", "1 1", "0 0"), ("salloc", "2 2", "2 2", "1 1"), ("array", "1", "1", "0")),
)
def test_allocation(name: str, tasks: str, cpus: str, gpus: str) -> None:
    nodes = read(name).nodes
    assert " ".join(str(node.tasks) for node in nodes) == tasks
    assert " ".join(str(node.cpus) for node in nodes) == cpus
    assert " ".join(str(node.gpus) for node in nodes) == gpus


def test_allocation_names_ids_launch_and_gpus() -> None:
    found = read("gap")
    assert found.names == ("gpu01", "gpu03")
    assert (found.scheduler, found.here, found.step_id, found.step_tasks) == ("slurm", "gpu01", "", 0)
    array = read("array")
    assert array.array_index == "3"
    assert (read("task_gres").step_id, read("task_gres").step_tasks) == ("0", 4)
    assert read("shell_in_job").step_tasks == 1
    assert read("salloc").here == ""
    assert read("hydra", host="gpu02.cluster").here == "gpu02", "Hydra hands on the first node's SLURMD_NODENAME"
    assert read("batch", host="elsewhere").here == "gpu01", "a node's name need not be its host's"
    assert read("task_gpus_per_task").masks_gpus
    assert read("gres", SLURM_GPU_BIND="single:1").masks_gpus
    assert not read("gres", SLURM_GPU_BIND="none").masks_gpus
    assert not read("gres").masks_gpus
    # TACC's nodes come with their GPUs; from a login node nothing is known of them.
    assert [node.gpus for node in read("batch", gpus=4).nodes] == [4, 4, 4]
    login = read("salloc", SLURM_GPUS_PER_NODE="", gpus=2)
    assert [node.gpus for node in login.nodes] == [None, None]
    assert [node.gpus for node in read("gpus_per_node", SLURM_GPUS_PER_NODE="a100:2").nodes] == [2, 2]
    uneven = read("batch", SLURM_GPUS="a100:7", SLURM_GPUS_ON_NODE="3")
    assert [node.gpus for node in uneven.nodes] == [3, None, None]
    assert "--gpus-per-node" in uneven.notes[0]
    assert "first component" in read("batch", SLURM_HET_SIZE="2").notes[0]


@with_rows(
    {"SLURM_JOB_NODELIST": "n[1-999999999]"},
    {"SLURM_JOB_NODELIST": "gpu[01-02]"},  # and three nodes
    *({"SLURM_JOB_NODELIST": ""}, {"SLURM_TASKS_PER_NODE": "two"}, {"SLURM_JOB_CPUS_PER_NODE": "9" * 99}),
)
def test_allocation_refuses_nonsense(changes: dict[str, str]) -> None:
    with pytest.raises(LaunchRefused):
        read("batch", **changes)


@each_row("name", ["SLURM_GPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_HET_SIZE", "SLURM_GPUS_PER_NODE"])
def test_allocation_other_nonsense_is_unknown(name: str) -> None:
    assert read("batch", **{name: "x" * 9}).node_count == 3
