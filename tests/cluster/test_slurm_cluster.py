# SPDX-License-Identifier: BSD-3-Clause
"""The Slurm that other tests use is a real one: it runs, refuses, ends and remembers like those of sites."""

from __future__ import annotations

import pytest

from tests.cluster.daemons import processes_of, wait_until
from tests.cluster.slurm_cluster import ACCOUNT, SlurmCluster, SlurmOptions
from tests.cluster.users import ClusterUser
from tests.requirements import require_root


def submit(user: ClusterUser, body: str, *options: str) -> str:
    return user.read_program("sbatch", "--parsable", *options, stdin=f"#!/bin/bash\n{body}\n").strip()


def test_slurm_cluster_runs_tasks_of_an_ordinary_user_on_all_nodes(slurm: SlurmCluster) -> None:
    out = slurm.user().read_program("srun", "-N2", "--ntasks-per-node=2", "sh", "-c", "echo $SLURMD_NODENAME $(id -un)")
    assert sorted(out.splitlines()) == ["n1 alice", "n1 alice", "n2 alice", "n2 alice"]


def test_slurm_cluster_gives_gpus(slurm: SlurmCluster) -> None:
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE")
    assert slurm.user().read_program("srun", "--gpus-per-node=a100:3", *show) == "0,1,2 3\n"
    assert slurm.user().read_program("srun", *show) == "\n"
    refused = slurm.user().run_program("srun", "--gpus-per-node=9", "true")
    assert "Requested node configuration is not available" in refused.stderr


def test_slurm_cluster_runs_arrays_and_dependencies(slurm: SlurmCluster) -> None:
    user = slurm.user()
    array = submit(user, "exit $((SLURM_ARRAY_TASK_ID == 2))", "--array=1-2", "--output=%A_%a.txt")
    after = submit(user, "true", f"--dependency=afterany:{array}")
    assert slurm.wait_for_state(after)["JobState"] == "COMPLETED"
    assert slurm.wait_for_state(f"{array}_1")["JobState"] == "COMPLETED"
    assert slurm.wait_for_state(f"{array}_2")["ExitCode"] == "1:0"
    assert (user.home / f"{array}_2.txt").exists()
    never = submit(user, "true", f"--dependency=afterok:{array}")
    assert slurm.wait_for_state(never, "PENDING")["Reason"] in ("Dependency", "DependencyNeverSatisfied")


def test_slurm_cluster_cancels(slurm: SlurmCluster) -> None:
    user = slurm.user()
    job = submit(user, "exec sleep 600")  # no shell beside it, which may end first: 143:0
    slurm.wait_for_state(job, "RUNNING")
    assert slurm.user("bob").run_program("scancel", job).returncode != 0, "of another user"
    user.read_program("scancel", job)
    # a busy node kills before the script has heard that it is to end
    assert slurm.wait_for_state(job, "CANCELLED")["ExitCode"] in ("0:15", "0:9")


def test_slurm_cluster_with_accounting_remembers(slurm_accounting: SlurmCluster) -> None:
    user = slurm_accounting.user()
    job = submit(user, "exit 3", "--gpus-per-node=1")
    ask = ("sacct", "-nPX", "-j", job, "-o", "State,ExitCode,Account")
    wait_until("sacct knows the end", lambda: user.read_program(*ask) == f"FAILED|3:0|{ACCOUNT}\n")
    slurm_accounting.wait_until_forgotten(job)
    assert user.read_program(*ask).startswith("FAILED")
    assert "Invalid account" in user.run_program("sbatch", "-A", "other", "--wrap=true").stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-N1", "-t1", "--gres=gpu:1"], "GPUs cannot be requested"),
        (["-N1", "-t1", "--gpus-per-task=1"], "GPUs cannot be requested"),
        (["-N1", "-t1", "--mem=1G"], "--mem"),
        (["-t1"], "(-N) is missing"),
        (["-N1"], "(-t) is missing"),
        (["-N1", "-t1", "-pgh"], None),
    ],
)
def test_slurm_cluster_refuses_like_tacc(slurm_tacc: SlurmCluster, options: list[str], sentence: str | None) -> None:
    done = slurm_tacc.user().run_program("sbatch", "-n1", *options, "--wrap=true")
    assert (done.returncode == 0) == (sentence is None), done.stderr
    assert (sentence or "") in done.stderr


def test_slurm_cluster_of_virtual_hosts_has_hosts(slurm_hosts: SlurmCluster) -> None:
    user = slurm_hosts.user()
    assert user.read_program("hostname") == "head\n"
    out = user.read_program("srun", "-N2", "sh", "-c", "hostname; getent hosts gpu01 gpu02 | wc -l")
    assert sorted(out.split()) == ["2", "2", "gpu01", "gpu02"]


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
