# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that fail as users' jobs do, on a real Slurm: `kedge diagnose JOB` says why, in its first line or two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.errors import FailureFound
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster

FAILURES = {
    "memory": (("--mem", "40M"), "python3 -c 'import time; x = bytearray(400 << 20); time.sleep(30)'", "job-memory"),
    "program": ((), "srun ./nosuch", "no-such-program"),
    "tasks": ((), "srun -n 40 hostname", "step-resources"),
    "pyxis": ((), "srun --container-image=ubuntu true", "no-pyxis"),
    "plugin": ((), "srun --mpi=nosuch hostname", "mpi-type"),
    "module": ((), "srun -l python3 -c 'import torchvision.models'", "no-module"),
    "disk": ((), "cat /proc/self/status >/dev/full", "full-disk"),
    "windows": ((), "printf 'ls\\r\\n\\r\\n' >dos.sh; bash dos.sh; exit 1", "dos-lines"),
    "segfault": ((), "srun -l sh -c 'kill -SEGV $$'", "segmentation-fault"),
    "exception": ((), "python3 -c 'raise ValueError(\"bad learning rate\")'", "python-exception"),
}


@pytest.fixture
def me(slurm: SlurmCluster) -> JobUser:
    return make_job_user(slurm)


def run_job(me: JobUser, *words: str) -> None:
    me.run("submit", "--wait", *words)


@pytest.mark.parametrize("name", FAILURES)
def test_diagnose_says_why_a_job_failed(me: JobUser, name: str) -> None:
    options, command, failure = FAILURES[name]
    run_job(me, "--name", name, "--time", "5m", *options, "-", "bash", "-c", command)
    done = me.run("--json", "diagnose", name)
    assert done.returncode == FailureFound.exit_code, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["clues"][0]["name"] == failure, done.stdout
    assert told["jobs"][0]["state"].startswith("failed")
    assert Path(told["clues"][0]["file"]).is_file()


def test_diagnose_of_a_job_beyond_its_time(me: JobUser) -> None:
    run_job(me, "--name", "late", "--time", "1s", "-", "sleep", "300")
    shown = me.run("diagnose", "late").stdout
    assert "timeout" in shown.splitlines()[0]
    assert "ask for more time with --time" in shown
    status = me.run("status", "late").stdout
    assert "ask for more time" not in status, "the state says it"


def test_diagnose_is_what_status_and_wait_say(me: JobUser) -> None:
    run_job(me, "--name", "same", "--time", "5m", "-", "bash", "-c", "srun --mpi=nosuch hostname")
    cause = json.loads(me.run("--json", "diagnose", "same").stdout)["clues"][0]["cause"]
    assert cause == "this cluster's Slurm has no --mpi=nosuch"
    assert f"cause: {cause}" in me.run("status", "same").stdout
    assert f"which means: {cause}" in me.run("wait", "same").stderr
    assert f"which means: {cause}" in me.run("logs", "-f", "same").stderr
