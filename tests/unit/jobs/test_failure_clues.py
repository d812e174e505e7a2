# SPDX-License-Identifier: BSD-3-Clause
"""The output of a failed job is explained by `status` and `wait`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.job_state import JobStatus, State
from kedge.errors import JobFailed
from kedge.jobs.failure_clues import find_failure_clue
from kedge.jobs.find_job import FoundJob
from kedge.jobs.records import Draft, Record, Records
from kedge.jobs.wait import require_success

FAILED = JobStatus("12", State.FAILED, "FAILED", exit_code=1)
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
NOT_READY = "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered internally at"


def make_record(folder: Path, output: str) -> Record:
    records = Records(folder / "jobs")
    key, _ = records.place()
    draft = Draft("train", "here", "slurm", {}, str(folder), str(folder / "{id}.out"), "", ["sbatch"])
    (folder / "12.out").write_text(output)
    return records.name_id(records.create(key, draft, ""), "12")


def test_clue_of_a_failed_job_is_in_the_end_of_its_output(tmp_path: Path) -> None:
    record = make_record(tmp_path, "step\n" * 200_000 + NO_KERNEL)
    clue = find_failure_clue(record, FAILED)
    assert clue.line == NO_KERNEL
    assert find_failure_clue(record, JobStatus("12", State.DONE, "COMPLETED")) is None
    assert find_failure_clue(None, FAILED) is None
    (tmp_path / "12.out").unlink()
    assert find_failure_clue(record, FAILED) is None


def test_clue_is_part_of_the_error_of_a_wait(tmp_path: Path) -> None:
    record = make_record(tmp_path, NOT_READY)
    with pytest.raises(JobFailed) as caught:
        require_success(FoundJob("12", record), [FAILED], lambda status: "it ended with status 1")
    assert caught.value.context["its output says"].startswith("Unexpected error from cudaGetDeviceCount()")
    assert "fabric manager" in caught.value.context["which means"]
    assert (caught.value.hint or "").endswith("see its output: kedge logs 12")
