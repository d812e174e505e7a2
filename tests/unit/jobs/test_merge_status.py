# SPDX-License-Identifier: BSD-3-Clause
"""Last words about jobs: what scripts and schedulers say together, and what nobody can say."""

from __future__ import annotations

import os
import time
from pathlib import Path

from kedge.base.frozen import replace
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.gridengine.backend import BACKEND as GRIDENGINE
from kedge.jobs.merge_status import find_ended, is_settled, lacks_tasks, merge
from kedge.jobs.records import Draft, Record, Records
from tests.builders.rows import each_row
from tests.wording import assert_says


def make_record(folder: Path, *, array: str = "", time_limit: int | None = None, age: float = 100) -> Record:
    records = Records(folder / "jobs")
    job: dict[str, object] = {"array": array} if array else {}
    if time_limit:
        job["time"] = time_limit
    key, _ = records.place()
    record = records.create(key, Draft("train", "here", "slurm", job, "/", "/{id}", "", []), "")
    record = records.name_id(record, "12")
    return replace(record, submitted=time.time() - age)


def write_words(record: Record, began: str, ended: str = "", index: str = "") -> None:
    (record.folder / f"began{index}").write_text(f"{began}\n")
    if ended:
        (record.folder / f"ended{index}").write_text(f"{ended}\n")


@each_row(("began", "ended", "state", "code"), [
    ("12 n1 1000", "0 1060", State.DONE, 0),
    ("12 n1 1000", "3 1060", State.FAILED, 3),
    ("12 n1 1000", "255 1060", State.FAILED, 255),
    ("12 n1 1000", "137 1060", State.FAILED, 137),
    ("12 n1 1000", "143 1010", State.FAILED, 143),
    ("12 n1 1000", "143 1060", State.TIMEOUT, None),
    ("12 n1 1000", "", State.LOST, None),
    ("12 n1 1000", "nonsense", State.LOST, None),
    ("12 n1 1000", "0 900", State.LOST, None),  # of the run before it was put back into the queue
    ("13 n1 1000", "0 1060", State.LOST, None),  # of the same script, submitted again by hand
    ("", "0 1060", State.DONE, 0),
    ("12 n1 1000\n/a\n/a\n12 n2 1010", "143 1020 12 n1 1000", State.LOST, None),  # the clock of n1 is fast
    ("12 n1 1000\n/a\n/a\n12 n2 1010", "0 1060 12 n2 1010", State.DONE, 0),
    ("12 n1 1000\n/a\n/a\n13 n2 1010", "0 1060 12 n1 1000", State.DONE, 0),  # again by hand, under another id
    ("12 n1 1000\n/a\n/a\n13 n2 1010", "0 1060 13 n2 1010", State.LOST, None),
])  # fmt: skip
def test_endings_without_the_scheduler_are_the_scripts(
    tmp_path: Path, began: str, ended: str, state: State, code: int | None
) -> None:
    record = make_record(tmp_path, time_limit=60)
    write_words(record, began, ended)
    [found] = merge(record, [])
    assert (found.state, found.exit_code) == (state, code)


def test_endings_count_attempts(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    write_words(record, "12 n1 1000\n/a b 7\n/c\n12 n2 1010\n/out\n/err", "143 1005 12 n1 1000")
    [ending] = record.read_endings()
    assert (ending.attempts, ending.host, ending.output, ending.error) == (2, "n2", "/out", "/err")
    [waits] = merge(record, [JobStatus("12", State.QUEUED, "PENDING")])
    assert waits.attempts == 2


@each_row(
    ("ended", "is_told"),
    [("0 1060", True), ("3 1060", True), ("137 1060", True), ("143 1060", True), ("143 1010", False), ("", False)],
)
def test_endings_that_may_not_be_the_last_need_the_scheduler(tmp_path: Path, ended: str, is_told: bool) -> None:
    record = make_record(tmp_path, time_limit=60)
    write_words(record, "12 n1 1000", ended)
    assert bool(find_ended(record)) is is_told


def test_endings_of_a_job_that_began_once_more_are_not_final(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    write_words(record, "12 n1 1000", "3 1060")
    Records(tmp_path / "jobs").close(record, merge(record, []))
    assert record.read_final()[0].state is State.FAILED
    os.utime(record.folder / "began", (0, time.time() + 10))
    assert record.read_final() == []


def test_endings_of_what_never_began_or_was_cancelled(tmp_path: Path) -> None:
    [fresh] = merge(make_record(tmp_path, age=1), [])
    assert fresh.state is State.QUEUED
    record = make_record(tmp_path)
    assert merge(record, [])[0].state is State.LOST
    record.note_cancelled(None)
    assert merge(record, [])[0].state is State.CANCELLED
    record = make_record(tmp_path, array="0-3")
    for index, ended in enumerate(("0 1010", "143 1010", "", "3 1010")):
        write_words(record, "12 n1 1000", ended, f".{index}")
    record.note_cancelled(2)
    states = [each.state for each in merge(record, [])]
    assert states == [State.DONE, State.FAILED, State.CANCELLED, State.FAILED]
    record.note_cancelled(None)
    states = [each.state for each in merge(record, [])]
    assert states == [State.DONE, State.CANCELLED, State.CANCELLED, State.FAILED]
    # Grid Engine has no account of a job that was put back into the queue and deleted there
    record = make_record(tmp_path)
    lost = JobStatus("12", State.LOST, "failed 25, exit_status 0", reason="rescheduling")
    assert merge(record, [lost])[0].state is State.LOST
    assert_says(GRIDENGINE.explain(lost), "schedulers/deleted-before-started-again")
    record.note_cancelled(None)
    assert merge(record, [lost])[0].state is State.CANCELLED


def test_endings_of_tasks_that_the_scheduler_forgot(tmp_path: Path) -> None:
    record = make_record(tmp_path, array="0-9:2")
    write_words(record, "12 n1 1000", "5 1010", ".2")
    told = [JobStatus("12", State.RUNNING, "RUNNING", 8), JobStatus("12", State.QUEUED, "PENDING", None, "4-6:2")]
    assert lacks_tasks(record, told)
    found = {each.index: each.state for each in merge(record, told)}
    assert found == {None: State.QUEUED, 0: State.LOST, 2: State.FAILED, 8: State.RUNNING}
    assert not lacks_tasks(record, [JobStatus("12", State.QUEUED, "PENDING", None, "0-8:2")])
    assert not lacks_tasks(record, [JobStatus("12", State.QUEUED, "PENDING", None, "0,2,4,...")])
    assert not lacks_tasks(record, [JobStatus("12", State.QUEUED, "PENDING")]), "one word for all"


@each_row(("code", "said"), [(127, 255), (None, 200), (9, 137)])
def test_endings_of_scripts_beat_codes_of_accounts(tmp_path: Path, code: int | None, said: int) -> None:
    record = make_record(tmp_path)
    write_words(record, "12 n1 1000", f"{said} 1010")
    status = JobStatus("12", State.FAILED, "FAILED", exit_code=code, details=(("exit code", "127 or 255"), ("a", "b")))
    [found] = merge(record, [status])
    assert (found.exit_code, found.details) == (said, (("a", "b"),))
    [other] = merge(record, [replace(status, state=State.OUT_OF_MEMORY)])
    assert (other.state, other.exit_code) == (State.OUT_OF_MEMORY, code)


def test_endings_that_are_lost_are_settled_after_a_day(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    lost = merge(record, [])
    assert not is_settled(record, lost)
    assert not is_settled(record, lost)
    os.utime(record.folder / "lost", (0, time.time() - 90_000))
    assert is_settled(record, lost)
    assert not is_settled(record, [*lost, JobStatus("12", State.RUNNING, "RUNNING")])
