# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for jobs, by a clock of the test's own: it ends where nothing more is to be expected, and for all at once."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.cluster.job_state import State
from kedge.cluster.schedulers.backend import Query
from kedge.cluster.schedulers.slurm.backend import BACKEND as SLURM
from kedge.cluster.site import Site
from kedge.errors import JobFailed, JobStuck, SchedulerFailed
from kedge.jobs import wait as job_waiting
from kedge.jobs.cluster import Cluster
from kedge.jobs.find_job import FoundJob
from kedge.jobs.records import Draft, Record, Records
from kedge.jobs.wait import wait_for, wait_for_all
from tests.builders.rows import each_row
from tests.wording import assert_says

LINE = "{id}|{index}|{state}|ada|gpu||1794728396|N/A|N/A|10:00|{reason}|train\n"


class Clock:
    """Time that passes only while somebody sleeps, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 10_000, "it waits for ever"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(job_waiting, "time", types.SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
    return clock


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(Site(name="here", title="", scheduler="slurm"), SLURM, "ada", Records(tmp_path / "jobs"))


def make_record(cluster: Cluster, id: str, **job: object) -> Record:
    key, _ = cluster.records.place()
    draft = Draft("train", "here", "slurm", {"name": "train", **job}, "/", "/{id}", "", ["sbatch"])
    record = cluster.records.create(f"{key}-{id}", draft, "")
    return replace(cluster.records.name_id(record, id), submitted=0.1)


def answer(monkeypatch: pytest.MonkeyPatch, tell: Callable[[], str]) -> list[str]:
    """squeue says what `tell` says, and other programs nothing; returns the names of those that were asked."""
    asked: list[str] = []

    def ask(self: Cluster, query: Query) -> str | None:
        asked.append(query.argv[0])
        return tell() if query.argv[0] == "squeue" else None

    monkeypatch.setattr(Cluster, "ask", ask)
    return asked


def line(id: str, state: str, reason: str = "None", index: str = "N/A") -> str:
    return LINE.format(id=id, state=state, reason=reason, index=index)


def test_waiting_for_lost_jobs_takes_as_long_as_for_one(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [FoundJob(id, make_record(cluster, id)) for id in map(str, range(1, 9))]
    asked = answer(monkeypatch, lambda: "")
    begin = clock.now
    outcomes = wait_for_all(cluster, jobs)
    assert [each.statuses[0].state for each in outcomes] == [State.LOST] * 8
    assert clock.now - begin < 30
    assert asked.count("squeue") < 12, "one question for all"
    assert asked.count("scontrol") == 0


@each_row("reason", ["DependencyNeverSatisfied", "BadConstraints", "QOSMaxWallDurationPerJobLimit"])
def test_waiting_in_vain_ends_at_once(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    job = FoundJob("12", make_record(cluster, "12"))
    answer(monkeypatch, lambda: line("12", "PENDING", reason))
    begin = clock.now
    with pytest.raises(JobStuck) as caught:
        wait_for(cluster, job)
    assert clock.now - begin < 3
    assert_says(caught.value.message, "submit/job-train-never-start-pending", 12)
    assert "kedge cancel 12" in str(caught.value.hint)
    assert caught.value.context["why"]


def test_waiting_believes_no_reason_of_a_moment(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([line("12", "PENDING", "InvalidAccount"), line("12", "PENDING", "Priority")])
    answer(monkeypatch, lambda: next(said, line("12", "COMPLETED")))
    [found] = wait_for(cluster, FoundJob("12", make_record(cluster, "12")))
    assert found.state is State.DONE


def test_waiting_for_tasks_goes_on_while_one_of_them_may_end(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = line("12", "PENDING", "BadConstraints", "[1-3]")
    said = iter([line("12", "RUNNING", index="0") + stuck] * 5)
    answer(monkeypatch, lambda: next(said, line("12", "COMPLETED", index="0") + stuck))
    with pytest.raises(JobStuck, match=r"12_\[1-3\] is pending"):
        wait_for(cluster, FoundJob("12", make_record(cluster, "12", array="0-3")))
    assert next(said, None) is None


def test_waiting_for_a_job_behind_one_that_never_begins(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_record(cluster, "11")
    after = [{"kind": "afterany", "job": "11", "record": ""}]
    job = FoundJob("12", make_record(cluster, "12", dependencies=after))
    first = line("11", "PENDING", "BadConstraints")
    answer(monkeypatch, lambda: first + line("12", "PENDING", "Dependency"))
    with pytest.raises(JobStuck) as caught:
        wait_for(cluster, job)
    assert caught.value.context["why"].startswith("it waits for job 11, which will never start: no node has")


def test_waiting_for_several_tells_of_each(cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [FoundJob(id, make_record(cluster, id)) for id in ("1", "2", "3")]
    said = iter([line("2", "RUNNING")] * 4)
    others = line("1", "PENDING", "DependencyNeverSatisfied") + line("3", "FAILED")
    answer(monkeypatch, lambda: others + next(said, line("2", "COMPLETED")))
    stuck, good, bad = wait_for_all(cluster, jobs)
    assert isinstance(stuck.problem, JobStuck)
    assert (good.statuses[0].state, bad.statuses[0].state) == (State.DONE, State.FAILED)


def test_waiting_outlives_a_controller_that_restarts(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_record(cluster, "12")

    def tell() -> str:
        if 1010 < clock.now < 1300:
            raise SchedulerFailed("nobody answers")
        return line("12", "RUNNING" if clock.now < 1400 else "COMPLETED")

    answer(monkeypatch, tell)
    assert wait_for(cluster, FoundJob("12", record))[0].state is State.DONE
    clock.now = 1350
    (record.folder / "final.json").unlink()
    with pytest.raises(JobFailed, match="after the timeout"):
        wait_for(cluster, FoundJob("12", record), timeout=5)
    assert clock.now < 1360
