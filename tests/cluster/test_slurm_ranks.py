# SPDX-License-Identifier: BSD-3-Clause
"""Tasks of srun that are containers, without `kedge launch`: those of a step share one, and nothing of it stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program

# Says where it is, and waits until all four of its step are there: a container that is left is not joined.
TASK = """
readlink /proc/self/ns/mnt
: > "$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_PROCID"
until [ $(ls | grep -c "^$SLURM_JOB_ID.$SLURM_STEP_ID.") = 4 ]; do sleep 0.1; done
"""
FOUR = ("-N1", "-n4", "--mem-per-cpu=100")


@pytest.fixture
def me(slurm: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm) as user:
        user.take_tools("tools.sif", "busybox")
        yield user


def kedge(me: JobUser, *command: str, flags: tuple[str, ...] = ()) -> list[str]:
    """`kedge exec` of the image, with words for its busybox, as a task has it."""
    image = str(me.folder / "tools.sif")
    return [*me.user.program, "exec", *flags, image, require_program("busybox"), *command]


def list_servers(me: JobUser) -> list[str]:
    """The programs that serve or use the image."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(me.folder / "tools.sif") in words:
            found.append(words[0].rpartition("/")[2])
    return found


def test_slurm_tasks_of_a_step_share_a_container(me: JobUser) -> None:
    for flags, expected in (((), 1), (("--sharens=false",), 4)):
        task = kedge(me, "sh", "-c", TASK, flags=flags)
        out, errors = me.user.start_program("srun", *FOUR, *task, cwd=me.folder).communicate(timeout=60)
        assert len(out.split()) == 4, errors
        assert len(set(out.split())) == expected, flags
        wait_until("nothing is left of the job", lambda: not list_servers(me), timeout=15)


def test_slurm_steps_at_once_have_containers_of_their_own(me: JobUser) -> None:
    words = kedge(me, "sh", "-c", '"$TASK"')
    task = " ".join(f"'{word}'" for word in words).replace("""'"$TASK"'""", '"$TASK"')
    steps = f"srun --overlap -n4 {task} > one & srun --overlap -n4 {task} > two & wait"
    me.write("job", f"#!/bin/sh\nTASK='{TASK}'\n{steps}\n")
    done = me.user.start_program("sbatch", "--wait", *FOUR, "--output=job.out", "job", cwd=me.folder)
    assert "Submitted" in done.communicate(timeout=60)[0]
    found = [(me.folder / name).read_text().split() for name in ("one", "two")]
    assert [len(each) for each in found] == [4, 4], (me.folder / "job.out").read_text()
    assert [len(set(each)) for each in found] == [1, 1]
    assert found[0][0] != found[1][0]


def test_slurm_job_that_is_cancelled_leaves_nothing(me: JobUser) -> None:
    require_program("squashfuse")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be used here")
    task = kedge(me, "sleep", "600", flags=("--root-from", "squashfuse"))
    step = me.user.start_program("srun", "--job-name=cancelled", *FOUR, *task, cwd=me.folder)
    wait_until("it runs", lambda: any("squashfuse" in name for name in list_servers(me)), every=0.1)
    me.user.read_program("scancel", "--name=cancelled")
    step.communicate(timeout=30)
    assert step.returncode != 0
    wait_until("nothing is left of the job", lambda: not list_servers(me), timeout=15)
