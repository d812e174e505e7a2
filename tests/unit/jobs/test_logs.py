# SPDX-License-Identifier: BSD-3-Clause
"""Output of jobs: found, cut at lines, followed until the job is over, and explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.cluster.job_state import JobStatus, State
from kedge.errors import FileProblem, JobFailed
from kedge.jobs import logs as job_logs
from kedge.jobs.failure_clues import find_failure_clue
from kedge.jobs.find_job import FoundJob
from kedge.jobs.logs import LogFile, find_logs, follow_logs, read_log, require_logs
from kedge.jobs.records import Draft, Record, Records
from kedge.jobs.wait import require_success
from tests.builders.rows import each_row
from tests.wording import assert_ends


def make_record(folder: Path, *, array: str = "", error: str = "") -> Record:
    records = Records(folder / "jobs")
    output = str(folder / ("{name}-{id}_{index}.out" if array else "{name}-{id}.out"))
    job = {"array": array} if array else {}
    draft = Draft("a b", "here", "slurm", job, str(folder), output, error, ["sbatch"])
    key, _ = records.place()
    return records.name_id(records.create(key, draft, ""), "12")


@each_row(("text", "lines", "wanted"), [
    ("", 3, ""), ("a\nb\nc\n", 0, ""), ("a\nb\nc\n", 1, "c\n"), ("a\nb\nc", 1, "c"), ("a\nb\nc\n", 2, "b\nc\n"),
    ("a\nb\nc\n", 3, "a\nb\nc\n"), ("a\nb\nc\n", 99, "a\nb\nc\n"), ("\n\n\n", 1, "\n"), ("\n\n\n", 2, "\n\n"),
    ("no end", 1, "no end"),
])  # fmt: skip
def test_logs_end_at_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, lines: int, wanted: str
) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    for piece in (1, 2, 3, 1 << 16):
        monkeypatch.setattr(job_logs, "_PIECE", piece)
        assert b"".join(read_log(LogFile(path), lines)).decode() == wanted


def test_logs_are_found_by_what_scripts_said_name_and_task(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    with pytest.raises(FileProblem, match="has written no output yet"):
        require_logs(record)
    (tmp_path / "a_b-12.out").write_text("by name")
    assert [each.path.name for each in find_logs(record)] == ["a_b-12.out"]
    (tmp_path / "elsewhere").write_text("as the script said")
    (record.folder / "began").write_text(f"12 node 1000\n{tmp_path}/elsewhere\n{tmp_path}/elsewhere\n")
    assert [each.path.name for each in find_logs(record)] == ["elsewhere"]
    (record.folder / "began").write_text(f"13 node 1000\n{tmp_path}/elsewhere\n")
    assert [each.path.name for each in find_logs(record)] == ["a_b-12.out"], "that was another job"
    record = make_record(tmp_path, array="0-4:2")
    for index in (0, 1, 4):
        (tmp_path / f"a_b-12_{index}.out").write_text("x")
    assert [each.path.name for each in find_logs(record)] == ["a_b-12_0.out", "a_b-12_4.out"]
    assert [each.path.name for each in find_logs(record, 4)] == ["a_b-12_4.out"]
    assert find_logs(record, 2) == []


def test_logs_are_followed_to_the_end_even_when_they_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_GLANCE", "_LINGER", "_OFTEN", "_SELDOM"):
        monkeypatch.setattr(job_logs, name, 0.0)
    path = tmp_path / "log"
    steps = iter(["", "one\n", "one\ntwo\n", "new\n", "new\nlast"])
    asked = []

    def find() -> list[LogFile]:
        text = next(steps, None)
        if text is not None:
            path.write_text(text)
        return [LogFile(path)]

    def is_over() -> bool:
        asked.append(True)
        return len(asked) > 5

    pieces = [piece for _, piece in follow_logs(find, is_over, lambda: False)]
    assert b"".join(pieces) == b"one\ntwo\nnew\nlast"


FAILED = JobStatus("12", State.FAILED, "FAILED", exit_code=1)
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
NOT_READY = "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered internally at"


def make_failed(folder: Path, output: str) -> Record:
    records = Records(folder / "jobs")
    key, _ = records.place()
    draft = Draft("train", "here", "slurm", {}, str(folder), str(folder / "{id}.out"), "", ["sbatch"])
    (folder / "12.out").write_text(output)
    return records.name_id(records.create(key, draft, ""), "12")


def test_clue_of_a_failed_job_is_in_its_output_and_the_error_of_a_wait(tmp_path: Path) -> None:
    record = make_failed(tmp_path, "step\n" * 200_000 + NO_KERNEL)
    clue = find_failure_clue(record, FAILED)
    assert clue.line == NO_KERNEL
    assert find_failure_clue(record, JobStatus("12", State.DONE, "COMPLETED")) is None
    assert find_failure_clue(None, FAILED) is None
    (tmp_path / "12.out").unlink()
    assert find_failure_clue(record, FAILED) is None
    record = make_failed(tmp_path, NOT_READY)
    with pytest.raises(JobFailed) as caught:
        require_success(FoundJob("12", record), [FAILED], lambda status: "it ended with status 1")
    assert caught.value.context["its output says"].startswith("Unexpected error from cudaGetDeviceCount()")
    assert "fabric manager" in caught.value.context["which means"]
    assert_ends(caught.value.hint or "", "submit/see-output-logs")
