# SPDX-License-Identifier: BSD-3-Clause
"""Jobs from Python on a real Slurm, as an ordinary user: job objects, and functions that run in a container."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cluster.job_user import PYTHON, JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.programs import read_program

HANDLE = read_program("submit_and_follow")
EXECUTOR = read_program("map_functions_over_jobs")


@pytest.fixture(scope="module")
def me(slurm: SlurmCluster) -> JobUser:
    user = make_job_user(slurm)
    user.take_tools("py.sif", PYTHON)
    return user


def run_python(user: JobUser, text: str) -> list[object]:
    program = user.write("program.py", text)
    done = user.user.run_program(sys.executable, str(program), cwd=user.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, list)
    return told


def test_python_jobs_are_objects(me: JobUser) -> None:
    state, name, logs, reason, problem, second, cancelled, kept = run_python(me, HANDLE)
    assert (state, name, logs, kept) == ("failed", "from python", "hello\n", "failed")
    assert "exit code 3" in str(reason)
    assert " failed with exit code " in str(problem)
    assert str(second).splitlines()[-1] == "1"
    assert cancelled == "cancelled"


def test_python_functions_run_in_containers(me: JobUser) -> None:
    placed, kind, said, squares, was_cancelled, lost = run_python(me, EXECUTOR)
    assert placed == ["it's $(id)\né", True, True]
    assert (kind, said) == ("ValueError", "no way")
    assert squares == [0, 1, 4, 9, 16]
    assert was_cancelled is True
    assert lost == "JobFailed"
