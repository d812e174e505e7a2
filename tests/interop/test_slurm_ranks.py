# SPDX-License-Identifier: BSD-3-Clause
"""Real Slurm: a cluster of one node, whose tasks are containers of an ordinary user."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm_cluster import SlurmCluster, SlurmOptions
from tests.cluster.users import ClusterUser
from tests.requirements import require_program, require_root, require_user_namespaces

# Says where it is, and waits until all four of its step are there: a container that is left is not joined.
TASK = """
readlink /proc/self/ns/mnt
: > "$SLURM_JOB_ID.$SLURM_STEP_ID.$SLURM_PROCID"
until [ $(ls | grep -c "^$SLURM_JOB_ID.$SLURM_STEP_ID.") = 4 ]; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterUser]:
    """A user of the cluster, which ends with the module."""
    require_root()
    require_user_namespaces()
    with SlurmCluster(SlurmOptions(nodes=1, gpus=0)) as slurm:
        yield slurm.user()


@pytest.fixture(scope="module")
def image(cluster: ClusterUser) -> str:
    path = cluster.home / "tools.sif"
    assert cluster.run("pull", str(path), f"host:{require_program('busybox')}").returncode == 0
    return str(path)


def kedge(user: ClusterUser, *words: str) -> list[str]:
    """`kedge exec` as a task has it."""
    argv = user.argv("exec", *words)
    return argv[argv.index("--clear-groups") + 1 :]


def list_servers(image: str) -> list[str]:
    """The programs that serve or use the image."""
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if image in words:
            found.append(words[0].rpartition("/")[2])
    return found


def wait_until_gone(image: str) -> None:
    end = time.monotonic() + 15
    while list_servers(image) and time.monotonic() < end:
        time.sleep(0.1)
    assert not list_servers(image), "nothing is left of the job"


@pytest.mark.parametrize(("words", "expected"), [([], 1), (["--sharens"], 1), (["--sharens=false"], 4)])
def test_slurm_tasks_of_a_step_share_a_container(
    cluster: ClusterUser, image: str, words: list[str], expected: int
) -> None:
    task = kedge(cluster, *words, image, require_program("busybox"), "sh", "-c", TASK)
    out, errors = cluster.start_program("srun", "-n4", *task).communicate(timeout=60)
    assert len(out.split()) == 4, errors
    assert len(set(out.split())) == expected
    wait_until_gone(image)


def test_slurm_steps_at_once_have_containers_of_their_own(cluster: ClusterUser, image: str) -> None:
    busybox, srun = require_program("busybox"), require_program("srun")
    task = " ".join(f"'{word}'" for word in kedge(cluster, image, busybox, "sh", "-c", '"$TASK"'))
    task = task.replace("""'"$TASK"'""", '"$TASK"')
    steps = f"{srun} --overlap -n4 {task} > one & {srun} --overlap -n4 {task} > two & wait"
    script = cluster.home / "job"
    script.write_text(f"#!/bin/sh\nTASK='{TASK}'\n{steps}\n")
    script.chmod(0o755)
    done = cluster.start_program("sbatch", "--wait", "-n4", "--output=job.out", str(script))
    assert "Submitted" in done.communicate(timeout=60)[0]
    found = [(cluster.home / name).read_text().split() for name in ("one", "two")]
    assert [len(each) for each in found] == [4, 4], (cluster.home / "job.out").read_text()
    assert [len(set(each)) for each in found] == [1, 1]
    assert found[0][0] != found[1][0]


def test_slurm_job_that_is_cancelled_leaves_nothing(cluster: ClusterUser, image: str) -> None:
    require_program("squashfuse")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be used here")
    task = kedge(cluster, "--root-from", "squashfuse", image, require_program("busybox"), "sleep", "600")
    step = cluster.start_program("srun", "-n4", *task)
    end = time.monotonic() + 30
    while not any("squashfuse" in name for name in list_servers(image)) and time.monotonic() < end:
        time.sleep(0.1)
    cluster.read_program("scancel", "--user=alice")
    step.communicate(timeout=30)
    assert step.returncode != 0
    wait_until_gone(image)
