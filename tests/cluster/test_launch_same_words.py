# SPDX-License-Identifier: BSD-3-Clause
"""One command line of `kedge launch`, typed once, on Slurm, Grid Engine, PBS (played) and without a scheduler."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.containers import Runner, each_role
from tests.cluster.job_user import JobUser, pack_tools
from tests.cluster.two_hosts import TWO, cell_user, slurm_user

__all__ = ["cell_user", "slurm_user"]

WORDS = ("--tasks", "4", "--ranks", "tools.sif", "sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"')
ALL = [f"rank {rank} of 4" for rank in range(4)]
JOB = (*TWO, "-", "sh", "-c")


@pytest.fixture
def runner() -> Iterator[Runner]:
    yield from each_role("user")


def check(run: str, dry: str, launcher: str, hosts: int) -> None:
    """What was run, and what --dry-run says of it: argv and environment of every rank."""
    assert sorted(line for line in run.splitlines() if line.startswith("rank ")) == ALL, run
    plan: dict[str, Any] = json.loads(dry[dry.index("{") : dry.rindex("}") + 1])
    assert plan["launcher"] == launcher
    assert [rank["environment"]["RANK"] for rank in plan["ranks"]] == ["0", "1", "2", "3"]
    assert {rank["environment"]["WORLD_SIZE"] for rank in plan["ranks"]} == {"4"}
    assert all(rank["argv"] == ["kedge", "exec", *WORDS[3:]] for rank in plan["ranks"])
    assert len({rank["host"] for rank in plan["ranks"]}) == hosts
    assert all(process["argv"] for process in plan["processes"])


def run_as_jobs(me: JobUser) -> tuple[str, str]:
    kedge = shlex.join(me.user.program)
    lines = [f"{kedge} launch {flags} {shlex.join(WORDS)}" for flags in ("", "--dry-run --json")]
    return me.run_job(*JOB, lines[0]), me.run_job(*JOB, lines[1])


def test_on_slurm(slurm_user: JobUser) -> None:
    check(*run_as_jobs(slurm_user), "srun", 2)


def test_on_grid_engine(cell_user: JobUser) -> None:
    check(*run_as_jobs(cell_user), "qrsh", 2)


def test_in_a_job_of_pbs(runner: Runner) -> None:
    """Played: its variables and node file are there, of this host alone, then of two others."""
    shutil.copy(pack_tools(), runner.home / "tools.sif")
    name = Path("/proc/sys/kernel/hostname").read_text().strip()
    nodes = runner.home / "nodes"
    nodes.write_text(f"{name}\n" * 4)
    job = {"PBS_JOBID": "4711.head", "PBS_NODEFILE": str(nodes), "PBS_ENVIRONMENT": "PBS_BATCH"}
    run = runner.read("launch", *WORDS, env=job)
    check(run, runner.read("launch", "--dry-run", "--json", *WORDS, env=job), "local", 1)
    nodes.write_text("n1\nn1\nn2\nn2\n")
    dry = runner.read("launch", "--dry-run", "--json", *WORDS, env=job)
    check("\n".join(ALL), dry, "mpirun", 2)


def test_without_a_scheduler(runner: Runner) -> None:
    shutil.copy(pack_tools(), runner.home / "tools.sif")
    check(runner.read("launch", *WORDS), runner.read("launch", "--dry-run", "--json", *WORDS), "local", 1)
