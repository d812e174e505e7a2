# SPDX-License-Identifier: BSD-3-Clause
"""The Slurm that other tests use is a real one: it refuses like that of TACC, and leaves nothing."""

from __future__ import annotations

import pytest

from tests.cluster.daemons import processes_of, wait_until
from tests.cluster.slurm_cluster import SlurmCluster, SlurmOptions
from tests.cluster.users import ClusterUser
from tests.requirements import require_root


def submit(user: ClusterUser, body: str, *options: str) -> str:
    return user.read_program("sbatch", "--parsable", *options, stdin=f"#!/bin/bash\n{body}\n").strip()


# None: it is taken
LIKE_TACC = {
    "-N1 -t1 --gres=gpu:1": "GPUs cannot be requested",
    "-N1 -t1 --gpus-per-task=1": "GPUs cannot be requested",
    "-N1 -t1 --mem=1G": "--mem",
    "-t1": "(-N) is missing",
    "-N1": "(-t) is missing",
    "-N1 -t1 -pgh": None,
}


def test_slurm_cluster_refuses_like_tacc(slurm_tacc: SlurmCluster) -> None:
    for options, sentence in LIKE_TACC.items():
        done = slurm_tacc.user().run_program("sbatch", "-n1", *options.split(), "--wrap=true")
        assert (done.returncode == 0) == (sentence is None), f"{options}: {done.stderr}"
        assert (sentence or "") in done.stderr, options


def test_slurm_cluster_leaves_nothing_after_a_failure() -> None:
    require_root()
    cluster = SlurmCluster(SlurmOptions(nodes=1, gpus=0))
    with pytest.raises(ZeroDivisionError):
        fail_with_a_running_job(cluster)
    wait_until("nothing is left", lambda: not cluster.folder.exists() and not processes_of(cluster.folder))


def test_slurm_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    require_root()
    cluster = SlurmCluster(SlurmOptions(lua="nonsense"))
    with pytest.raises(AssertionError, match=r"job_submit\.lua:1"), cluster:
        pass
    wait_until("nothing is left", lambda: not cluster.folder.exists() and not processes_of(cluster.folder))


def fail_with_a_running_job(cluster: SlurmCluster) -> None:
    with cluster:
        cluster.wait_for_state(submit(cluster.user(), "sleep 600"), "RUNNING")
        assert len(processes_of(cluster.folder)) > 3
        raise ZeroDivisionError
