# SPDX-License-Identifier: BSD-3-Clause
"""What jobs used, from records and accounts; and which smaller request is proposed."""

from __future__ import annotations

from typing import Any

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job import Job, Parallel
from kedge.cluster.job_state import JobStatus, JobUsage, State
from kedge.jobs.efficiency import judge_job
from tests.builders.rows import each_row

GIB = 1 << 30
STATUS = JobStatus("12", State.DONE, "COMPLETED", name="train", started=1000.0, ended=1600.0)
JOB = Job(name="train", image="x.sif", time=7200, memory=64 * GIB, cpus_per_task=16, gpus_per_node=4)


def gpu(mean: float, peak: int, used: int = 8 * GIB) -> dict[str, Any]:
    return {"utilisation_mean": mean, "utilisation_peak": peak, "memory_peak": used, "memory": 80 * GIB}


RUN: dict[str, Any] = {
    "verb": "exec",
    "host": {"cpus": 16},
    "times": {"seconds": 590.0},
    "usage": {"cpu_seconds": 1500.0, "memory_peak": 10 * GIB, "largest_process": 6 * GIB},
    "gpus": [gpu(80.0, 100), gpu(60.0, 90), gpu(0.0, 0, 0), gpu(0.0, 1, 0)],
}


def test_judge_job_compares_sources_and_proposes() -> None:
    found = judge_job(STATUS, JOB, RUN, None)
    assert (found.seconds, found.time_limit) == (600.0, 7200)
    assert found.cpu_load == pytest.approx(15.6, abs=0.1)
    assert (found.memory, found.memory_asked) == (10 * GIB, 64 * GIB)
    assert (found.gpus, found.gpus_used, found.gpu_load, found.gpu_memory) == (4, 2, 35.0, 10.0)
    assert found.enough == ("--time", "13m", "--mem", "12G", "--cpus-per-task", "3", "--gpus", "2")
    assert found.sources == ("record",)
    usage = JobUsage(seconds=605.0, cpus=16, cpu_seconds=9000.0, memory=20 * GIB, memory_asked=64 * GIB)
    found = judge_job(STATUS, JOB, RUN, usage)
    assert (found.seconds, found.memory, found.cpu_seconds) == (605.0, 20 * GIB, 9000.0)
    assert "--cpus-per-task" not in found.enough
    assert found.sources == ("record", "accounts")
    job = replace(JOB, parallel=Parallel.MPI, nodes=2)
    found = judge_job(STATUS, job, {**RUN, "verb": "launch"}, None)
    assert (found.memory, found.cpu_seconds, found.gpus_used) == (None, None, None)
    assert found.enough == ("--time", "13m")


def test_judge_job_proposes_nothing_without_reason() -> None:
    for state in (State.FAILED, State.TIMEOUT, State.OUT_OF_MEMORY, State.CANCELLED):
        assert judge_job(replace(STATUS, state=state), JOB, RUN, None).enough == ()
    tight = replace(JOB, time=660, memory=11 * GIB, cpus_per_task=2, gpus_per_node=2)
    assert judge_job(STATUS, tight, RUN, None).enough == ()
    found = judge_job(replace(STATUS, started=None), Job(), None, None)
    assert (found.seconds, found.memory, found.cpu_load, found.enough, found.sources) == (None, None, None, (), ())


@each_row("value", ["x", None, [], float("nan"), -1, 1e300, True])
def test_judge_job_survives_a_record_that_somebody_changed(value: object) -> None:
    run = {
        "verb": value,
        "host": {"cpus": value},
        "times": {"seconds": value},
        "usage": {"cpu_seconds": value, "memory_peak": value, "largest_process": value},
        "gpus": [{"utilisation_mean": value, "utilisation_peak": value, "memory_peak": value, "memory": value}, value],
    }
    found = judge_job(STATUS, JOB, run, None)
    assert (found.memory, found.cpu_seconds, found.gpu_load) == (None, None, None)
    assert judge_job(STATUS, JOB, {**run, "gpus": value}, None).gpus == 4
