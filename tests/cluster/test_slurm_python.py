# SPDX-License-Identifier: BSD-3-Clause
"""Jobs from Python on a real Slurm, as an ordinary user: job objects, and functions that run in a container."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster

HANDLE = """\
import json, kedge
job = kedge.submit(command=["sh", "-c", "echo hello; exit 3"], time="5m", name="from python")
state = job.wait(60)
again = kedge.job(job.id)
try:
    again.wait(check=True)
    problem = ""
except kedge.errors.JobFailed as found:
    problem = found.message
array = kedge.submit("py.sif", ["sh", "-c", "echo $KEDGE_ARRAY_INDEX"], array="0-1")
array.wait(60, check=True)
long = kedge.submit(command=["sleep", "300"])
long.cancel()
print(json.dumps([state, again.name, again.logs(), again.reason, problem, array.logs(1), long.wait(60), job.state]))
"""
EXECUTOR = """\
import json, os, time, kedge
def place(word):
    return [word, os.path.exists("/.singularity.d"), os.environ.get("KEDGE_JOB_ID", "") != ""]
def fail(word):
    raise ValueError(f"no {word}")
def square(number):
    return number * number
def vanish():
    os._exit(7)
if __name__ == "__main__":
    with kedge.Executor("py.sif", time="5m") as executor:
        one, two = executor.submit(place, "it's $(id)\\né"), executor.submit(fail, "way")
        gone, slow = executor.submit(vanish), executor.submit(time.sleep, 300)
        squares = list(executor.map(square, range(5), chunksize=2))
        was_cancelled = slow.cancel()
        problem = two.exception(60)
        lost = gone.exception(60)
        print(json.dumps([one.result(60), type(problem).__name__, str(problem), squares, was_cancelled,
                          type(lost).__name__]))
"""


@pytest.fixture(scope="module")
def me(slurm: SlurmCluster) -> JobUser:
    user = make_job_user(slurm)
    user.read("pull", "py.sif", "host:python3,sh")
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
    assert "status 3" in str(reason)
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
