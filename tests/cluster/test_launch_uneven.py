# SPDX-License-Identifier: BSD-3-Clause
"""More ranks on one node than on another, on a real Slurm: every launcher deals them out as kedge planned it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program

SHOW = 'echo "rank $RANK: $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"'

TWO = (("gpu01", 3, 0), ("gpu02", 2, 1))


@pytest.fixture
def me(slurm_three_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_three_hosts) as user:
        user.take_tools()
        yield user


def launch(me: JobUser, job: str, *options: str) -> list[str]:
    """Lines of the ranks of a `kedge launch` in a job, in their order."""
    words = [*me.user.program, "launch", "--ranks", *options, str(me.folder / "tools.sif"), "sh", "-c", SHOW]
    output = me.folder / "launch.out"
    script = f"#!/bin/bash\n{shlex.join(words)}\n"
    done = me.user.run_program("sbatch", "--wait", "-o", str(output), *job.split(), stdin=script)
    text = output.read_text() if output.exists() else ""
    assert done.returncode == 0, f"{done.stderr}{text}"
    return [line.partition(": ")[2] for line in sorted(text.splitlines()) if line.startswith("rank")]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_launch_five_ranks_on_two_nodes_with_room_for_four(me: JobUser, launcher: str) -> None:
    if launcher == "mpirun":
        require_program("mpirun")
    shown = launch(me, "-N2 --ntasks-per-node=4", "--launcher", launcher, "--tasks", "5")
    first, second = ([f"{host} {local}/{count} {node} gpu01" for local in range(count)] for host, count, node in TWO)
    assert shown == [*first, *second]


def test_launch_four_ranks_on_three_nodes(me: JobUser) -> None:
    shown = launch(me, "-N3 --ntasks-per-node=2", "--launcher", "srun", "--tasks", "4")
    assert shown == ["gpu01 0/2 0 gpu01", "gpu01 1/2 0 gpu01", "gpu02 0/1 1 gpu01", "gpu03 0/1 2 gpu01"]


def test_launch_on_some_nodes_of_a_job(me: JobUser) -> None:
    shown = launch(me, "-N3 --ntasks-per-node=1", "--nodes", "2")
    assert shown == ["gpu01 0/1 0 gpu01", "gpu02 0/1 1 gpu01"]
