# SPDX-License-Identifier: BSD-3-Clause
"""Commands that open a terminal in an allocation."""

from __future__ import annotations

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import IndexRange, Job, JobArray, Parallel
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.site import Site
from kedge.errors import RequestRefused
from tests.builders.rows import each_row

SITE = Site("generic-slurm", "Slurm", "slurm")
COMMAND = ["kedge", "shell", "a b.sif"]
STEP = ["srun", "--interactive", "--preserve-env", "--pty", *COMMAND]


def test_interactive_one_task_is_srun() -> None:
    job = Job(name="a b", gpus_per_node=1, time=3600, account="p")
    argv = ["srun", "--job-name=a b", "--account=p", "--gpus-per-node=1", "--time=01:00:00", "--pty", *COMMAND]
    assert SLURM.interactive_argv(job, SITE, COMMAND) == argv
    job = Job(directives=("-L 'a b'", "--output=x --requeue"), drop_directives=("job-name",), mail="a@b")
    assert SLURM.interactive_argv(job, SITE, ["sh"]) == [
        "srun", "--mail-user=a@b", "--mail-type=END,FAIL", "-L", "a b", "--pty", "sh",
    ]  # fmt: skip
    site = replace(SITE, account_on_command_line=True)
    assert "--account=p" in SLURM.interactive_argv(Job(account="p"), site, COMMAND)
    # srun complains about the lack of one, and Grid Engine's qrsh loses the status.
    for scheduler, job in ((SLURM, Job()), (SLURM, Job(nodes=2)), (GRIDENGINE, Job())):
        words = scheduler.interactive_argv(job, SITE, COMMAND, has_terminal=False)
        assert not {"--pty", "-pty"} & set(words)
        assert "a b.sif" in words[-1]


@each_row("more", [{"nodes": 2}, {"tasks": 4, "parallel": Parallel.MPI}, {"tasks_per_node": 2}])
def test_interactive_several_tasks_leave_room_for_srun_inside(more: dict[str, int]) -> None:
    argv = SLURM.interactive_argv(Job(**more), SITE, COMMAND)  # type: ignore[arg-type]
    assert (argv[:2], argv[-len(STEP) :]) == (["salloc", "--job-name=kedge"], STEP)


def test_interactive_ways_of_sites() -> None:
    site = replace(SITE, interactive="salloc", interactive_queue="dev")
    assert SLURM.interactive_argv(Job(), site, COMMAND) == ["salloc", "--job-name=kedge", "--partition=dev", *STEP]
    assert "--partition=gpu" in SLURM.interactive_argv(Job(queue="gpu"), site, COMMAND)
    site = replace(SITE, interactive="idev", interactive_queue="rtx-dev")
    job = Job(nodes=2, tasks=8, parallel=Parallel.MPI, time=3601, account="p", reservation="course", gpus_per_node=4)
    assert SLURM.interactive_argv(job, site, COMMAND) == [
        "idev", "-p", "rtx-dev", "-N", "2", "-n", "8", "-m", "61", "-A", "p", "-r", "course",
    ]  # fmt: skip
    assert SLURM.interactive_argv(Job(queue="rtx"), site, COMMAND) == ["idev", "-p", "rtx", "-N", "1", "-n", "1"]
    with pytest.raises(RequestRefused, match="qrsh"):
        SLURM.interactive_argv(Job(), replace(SITE, interactive="qrsh"), COMMAND)


@each_row("way", ["", "salloc", "idev"])
def test_interactive_arrays_are_refused(way: str) -> None:
    with pytest.raises(RequestRefused, match="array"):
        SLURM.interactive_argv(Job(array=JobArray((IndexRange(1, 2),))), replace(SITE, interactive=way), COMMAND)
