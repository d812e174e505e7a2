# SPDX-License-Identifier: BSD-3-Clause
"""Processes in jobs of a real Slurm and a real Grid Engine find their nodes and ranks, however they were started."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.users import ClusterUser
from tests.requirements import REPOSITORY, require_program

SHOW = shlex.join([sys.executable, str(REPOSITORY / "tests/programs/show_allocation.py")])


def read_lines(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each["rank"]["rank"] if each["rank"] else 0)


def nodes_of(shown: dict[str, Any]) -> list[tuple[str, int, int, int | None]]:
    return [(node["name"], node["tasks"], node["cpus"], node["gpus"]) for node in shown["nodes"]]


def places_of(shown: list[dict[str, Any]]) -> list[tuple[str, int, int, int, int]]:
    ranks = [each["rank"] for each in shown]
    return [
        (each["host"], rank["rank"], rank["local_rank"], rank["local_size"], rank["node_rank"])
        for each, rank in zip(shown, ranks, strict=True)
    ]


def sbatch(user: ClusterUser, *options: str, line: str = SHOW) -> list[dict[str, Any]]:
    output = user.home / "allocation.out"
    output.unlink(missing_ok=True)
    done = user.run_program("sbatch", "--wait", "-o", str(output), *options, stdin=f"#!/bin/bash\n{line}\n")
    text = output.read_text() if output.exists() else ""
    assert done.returncode == 0, f"{done.stderr}{text}"
    return read_lines(text)


@pytest.fixture
def me(slurm_three_hosts: SlurmCluster) -> ClusterUser:
    return slurm_three_hosts.user()


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ("-N3 --ntasks-per-node=2", [("gpu01", 2, 2), ("gpu02", 2, 2), ("gpu03", 2, 2)]),
        ("-N3 -n5", [("gpu01", 3, 3), ("gpu02", 1, 1), ("gpu03", 1, 1)]),
        ("-N2 -x gpu02 --ntasks-per-node=1 -c4", [("gpu01", 1, 4), ("gpu03", 1, 4)]),
    ],
)
def test_slurm_batch_step(me: ClusterUser, options: str, nodes: list[tuple[str, int, int]]) -> None:
    (shown,) = sbatch(me, *options.split())
    assert [each[:3] for each in nodes_of(shown)] == nodes
    assert (shown["here"], shown["rank"], shown["launcher"]) == ("gpu01", None, "")


@pytest.mark.parametrize(
    ("options", "gpus", "masks"),
    [
        ("--gres=gpu:2", [2, 2], False),
        ("--gpus-per-node=a100:3", [3, 3], False),
        ("--gpus-per-task=1", [2, 2], True),
        ("--exclusive", [4, 4], False),
    ],
)
def test_slurm_gpus_however_they_were_asked_for(me: ClusterUser, options: str, gpus: list[int], masks: bool) -> None:
    (shown,) = sbatch(me, "-N2", "--ntasks-per-node=2", options)
    assert [node[3] for node in nodes_of(shown)] == gpus
    assert shown["masks_gpus"] is masks


def test_slurm_gpus_in_total_are_uneven_and_known(me: ClusterUser) -> None:
    (shown,) = sbatch(me, "-N2", "-n2", "--gpus=4")
    assert sum(node[3] or 0 for node in nodes_of(shown)) == 4
    assert "--gpus-per-node" in shown["notes"][0]


@pytest.mark.parametrize("kind", ["none", "pmi2", "pmix"])
def test_slurm_tasks_know_their_ranks(me: ClusterUser, kind: str) -> None:
    shown = sbatch(me, "-N3", "-n5", line=f"srun --mpi={kind} {SHOW}")
    assert places_of(shown) == [
        *(("gpu01", 0, 0, 3, 0), ("gpu01", 1, 1, 3, 0), ("gpu01", 2, 2, 3, 0)),
        *(("gpu02", 3, 0, 1, 1), ("gpu03", 4, 0, 1, 2)),
    ]
    assert {(each["launcher"], each["step_tasks"], each["here"] == each["host"]) for each in shown} == {
        ("srun", 5, True)
    }


def test_slurm_ranks_that_are_dealt_out_in_turn(me: ClusterUser) -> None:
    shown = sbatch(me, "-N2", "--ntasks-per-node=2", line=f"srun --distribution=cyclic {SHOW}")
    assert places_of(shown) == [
        *(("gpu01", 0, 0, 2, 0), ("gpu02", 1, 0, 2, 1), ("gpu01", 2, 1, 2, 0), ("gpu02", 3, 1, 2, 1))
    ]


@pytest.mark.parametrize(("program", "launcher"), [("mpirun.openmpi", "open_mpi"), ("mpiexec.mpich", "hydra")])
def test_slurm_ranks_of_mpi_launchers(me: ClusterUser, program: str, launcher: str) -> None:
    require_program(program)
    # Open MPI 5 binds ranks to cores of this machine, of which the nodes pretend to have more
    unbound = " --bind-to none" if launcher == "open_mpi" else ""
    shown = sbatch(me, "-N2", "-n4", line=f"{program}{unbound} -n 4 {SHOW} 3 1")
    assert [place[1:] for place in places_of(shown)] == [(0, 0, 3, 0), (1, 1, 3, 0), (2, 2, 3, 0), (3, 0, 1, 1)]
    assert {each["launcher"] for each in shown} == {launcher}
    assert shown[-1]["here"] == "gpu02"


def test_slurm_shell_in_a_job_sees_all_of_it(me: ClusterUser) -> None:
    (shown,) = sbatch(me, "-N2", "--ntasks-per-node=2", line=f"srun -N1 -n1 --overlap {SHOW}")
    assert [each[:3] for each in nodes_of(shown)] == [("gpu01", 2, 2), ("gpu02", 2, 2)]
    assert (shown["step_id"], shown["step_tasks"]) == ("0", 1)


def test_slurm_salloc_on_the_login_node(me: ClusterUser) -> None:
    (shown,) = read_lines(me.read_program("salloc", "-N2", "--ntasks-per-node=2", *shlex.split(SHOW)))
    assert nodes_of(shown) == [("gpu01", 2, 2, None), ("gpu02", 2, 2, None)]
    assert (shown["here"], shown["host"]) == ("", "head")


def qsub(user: ClusterUser, *options: str, line: str = SHOW) -> list[dict[str, Any]]:
    output = user.home / "allocation.out"
    output.unlink(missing_ok=True)
    words = ("qsub", "-sync", "y", "-j", "y", "-o", str(output), "-cwd", *options)
    done = user.run_program(*words, stdin=f"#!/bin/bash\n{line}\n")
    text = output.read_text() if output.exists() else ""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{text}"
    return read_lines(text)


@pytest.fixture
def grid_user(gridengine: GridEngineCell) -> ClusterUser:
    return gridengine.user()


@pytest.mark.parametrize(
    ("options", "tasks"), [("-pe ppn2 4", [2, 2]), ("-pe mpi 5", [3, 2]), ("-pe smp 3", [3]), ("", [1])]
)
def test_grid_engine_jobs(grid_user: ClusterUser, options: str, tasks: list[int]) -> None:
    (shown,) = qsub(grid_user, *options.split())
    assert [node[1] for node in nodes_of(shown)] == tasks
    assert shown["here"] == shown["host"] == shown["nodes"][0]["name"], "the first node is where the script runs"
    assert (shown["scheduler"], shown["rank"]) == ("gridengine", None)


@pytest.mark.parametrize(("program", "launcher"), [("mpirun.openmpi", "open_mpi"), ("mpiexec.mpich", "hydra")])
def test_grid_engine_ranks_of_mpi_launchers(grid_user: ClusterUser, program: str, launcher: str) -> None:
    require_program(program)
    line = f"{program} -n 4 env -u PE_HOSTFILE {SHOW} 2 2"  # the file is on the first node only
    shown = qsub(grid_user, "-pe", "ppn2", "4", line=line)
    assert [place[1:] for place in places_of(shown)] == [(0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 2, 1), (3, 1, 2, 1)]
    assert {each["launcher"] for each in shown} == {launcher}


def test_grid_engine_task_on_another_host(grid_user: ClusterUser) -> None:
    line = f'other=$(tail -n1 "$PE_HOSTFILE" | cut -d" " -f1); qrsh -inherit -nostdin "$other" {SHOW}'
    (shown,) = qsub(grid_user, "-pe", "ppn2", "4", line=line)
    assert (shown["step_id"], len(shown["nodes"])) == ("qrsh", 1)
