# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that a real Slurm puts back into the queue: what their first run left behind is not their last word."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import JobFailed, SchedulerFailed
from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster, SlurmOptions
from tests.requirements import require_root

# its first run lasts, its second ends at once
TWICE = "echo run >>runs; [ $(wc -l <runs) -gt 1 ] || sleep 300; echo fine"
EXECUTOR = """\
import os, time, kedge
def work():
    with open("runs", "a") as file:
        file.write("run\\n")
    if len(open("runs").readlines()) == 1:
        time.sleep(300)
    return "second"
if __name__ == "__main__":
    with kedge.Executor(time="5m", python=PYTHON, site="generic-slurm") as executor:
        future = executor.submit(work)
        print(future.job.id, flush=True)
        print(future.result(120), flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    require_root()
    with SlurmCluster(SlurmOptions(nodes=1, gpus=0)) as started:
        yield started


@pytest.fixture
def me(cluster: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(cluster) as user:
        yield user


def put_back(cluster: SlurmCluster, job: str, ended: Path) -> None:
    """As an administrator does, or a preemption."""
    cluster.read("scontrol", "requeue", job)
    cluster.wait_for_state(job, "PENDING")
    wait_until("the first run has written its end", ended.exists)


def begin_again(cluster: SlurmCluster, job: str, me: JobUser) -> None:
    """Without the two minutes for which Slurm keeps such a job waiting: it may set them after it says PENDING.

    The second line of the job's own file is the proof: between two runs the job is PENDING and COMPLETING by turns.
    """
    time.sleep(2)  # in the second in which a node heard of a job's end it does not start it again: "already killed"

    def has_begun_again() -> bool:
        with contextlib.suppress(AssertionError):  # it runs, or has ended
            cluster.read("scontrol", "update", f"JobId={job}", "StartTime=now")
        return (me.folder / "runs").read_text() == "run\nrun\n"

    try:
        wait_until(f"job {job} has begun again", has_begun_again, every=1)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{cluster.describe_job(job)}\n{cluster.daemons.read_logs('slurm')}") from None


def test_requeue_is_no_end_for_status_and_wait_without_a_controller(me: JobUser, cluster: SlurmCluster) -> None:
    job = me.submit_shell(TWICE)
    me.await_file("runs")
    [record] = me.records.iterdir()
    put_back(cluster, job, record / "ended")
    assert "pending again after 1 attempt" in me.read("status", job)
    good, bad = me.submit_shell("true"), me.submit_shell("exit 3")
    for each in (good, bad):
        cluster.wait_for_state(each)
    cluster.stop_control()
    try:
        for words in (("jobs",), ("submit", "-", "true")):
            done = me.run(*words)
            assert done.returncode not in (0, 1), f"{words}: {done.stdout}"
            assert "lost" not in done.stdout
            assert "Traceback" not in done.stderr
        assert me.status(good)["state"] == "done", "its script ended by itself"
        assert me.run("wait", bad).returncode == JobFailed.exit_code
        for verb in ("status", "wait"):
            done = me.run(verb, job)
            assert done.returncode == SchedulerFailed.exit_code, done.stdout + done.stderr
    finally:
        cluster.start_control()
    begin_again(cluster, job, me)
    assert me.run("wait", job, "--timeout", "90s").returncode == 0
    assert "(attempt 2)" in me.read("status", job)
    assert me.status(job)["attempts"] == 2
    assert me.read("logs", job).endswith("fine\n")


def test_requeue_after_the_end_begins_a_record_anew(me: JobUser, cluster: SlurmCluster) -> None:
    job = me.submit_shell("echo run >>runs; echo attempt $(wc -l <runs); exit $(( $(wc -l <runs) % 2 ))")
    me.wait(job)
    assert me.status(job)["exit_code"] == 1
    cluster.wait_for_state(job)  # kedge knows the end from the record, before Slurm does
    cluster.read("scontrol", "requeue", job)
    cluster.wait_for_state(job, "PENDING")
    begin_again(cluster, job, me)
    cluster.wait_for_state(job)
    assert (me.status(job)["state"], me.status(job)["attempts"]) == ("done", 2)
    assert me.run("wait", job).returncode == 0
    said = me.read("logs", job)
    assert "attempt 1\n" in said, "the first attempt's output is lost"
    assert "attempt 2\n" in said


def test_requeue_does_not_fail_a_future(me: JobUser, cluster: SlurmCluster) -> None:
    program = me.write("program.py", EXECUTOR.replace("PYTHON", repr(sys.executable)))
    with me.user.start_program(sys.executable, str(program), cwd=me.folder) as process:
        assert process.stdout is not None
        job = process.stdout.readline().strip()
        me.await_file("runs")
        [record] = me.records.iterdir()
        put_back(cluster, job, record / "ended")
        # as long as a result may be on its way after its job is over, and the scheduler was asked
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        begin_again(cluster, job, me)
        said, _ = process.communicate(timeout=90)
    assert (said, process.returncode) == ("second\n", 0)
