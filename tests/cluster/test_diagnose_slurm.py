# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that fail as users' jobs do, on a real Slurm: `kedge diagnose JOB` says why, in its first line or two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.errors import FailureFound
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.wording import assert_reads

# name -> what its program is, and the name of the failure
FAILURES = {
    "memory": ("python3 -c 'import time; x = bytearray(400 << 20); time.sleep(30)'", "job-memory"),
    "program": ("srun ./nosuch", "no-such-program"),
    "tasks": ("srun -n 40 hostname", "step-resources"),
    "pyxis": ("srun --container-image=ubuntu true", "no-pyxis"),
    "plugin": ("srun --mpi=nosuch hostname", "mpi-type"),
    "module": ("srun -l python3 -c 'import torchvision.models'", "no-module"),
    "disk": ("cat /proc/self/status >/dev/full", "full-disk"),
    "windows": ("printf 'ls\\r\\n\\r\\n' >dos.sh; bash dos.sh; exit 1", "dos-lines"),
    "segfault": ("srun -l sh -c 'kill -SEGV $$'", "segmentation-fault"),
    "exception": ("python3 -c 'raise ValueError(\"bad learning rate\")'", "python-exception"),
}


@pytest.fixture(scope="module")
def me(slurm: SlurmCluster) -> JobUser:
    """With all those jobs, which have ended."""
    user = make_job_user(slurm)
    lines = ["[job]", 'time = "5m"']
    for name, (program, _) in FAILURES.items():
        command = json.dumps(["bash", "-c", program])
        lines += [f"[jobs.{name}]", f"command = {command}", *(['memory = "40M"'] if name == "memory" else [])]
    user.write("kedge.toml", "\n".join([*lines, ""]))
    ids = {each["name"]: each["id"] for each in user.tell("submit", "--all")}
    user.run("wait", *ids.values(), "--timeout", "240s")
    return user


def test_diagnose_says_why_a_job_failed(me: JobUser) -> None:
    wrong = []
    for name, (_, failure) in FAILURES.items():
        done = me.run("--json", "diagnose", name)
        assert done.returncode == FailureFound.exit_code, f"{name}\n{done.stdout}{done.stderr}"
        told = json.loads(done.stdout)
        clue = told["clues"][0]
        if clue["name"] != failure or not told["jobs"][0]["state"].startswith("failed"):
            wrong.append(f"{name}: {done.stdout}")
        assert Path(clue["file"]).is_file(), name
    assert not wrong, "\n".join(wrong)


def test_diagnose_is_what_status_and_wait_say(me: JobUser) -> None:
    cause = json.loads(me.run("--json", "diagnose", "plugin").stdout)["clues"][0]["cause"]
    assert_reads(cause, "diagnose/clusters-slurm-no-mpi-nosuch")
    assert f"cause: {cause}" in me.run("status", "plugin").stdout
    assert f"which means: {cause}" in me.run("wait", "plugin").stderr
    assert f"which means: {cause}" in me.run("logs", "-f", "plugin").stderr
