# SPDX-License-Identifier: BSD-3-Clause
"""Waits for jobs until they have ended, are lost, or will never start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kedge.cluster.job_state import JobStatus, State
from kedge.errors import InvalidJob, JobFailed, JobStuck, KedgeError, SchedulerFailed
from kedge.jobs.cluster import Cluster
from kedge.jobs.encoding import decode_job
from kedge.jobs.failure_clues import find_failure_clue
from kedge.jobs.find_job import FoundJob
from kedge.jobs.merge_status import have_scripts_ended
from kedge.jobs.records import Record
from kedge.jobs.status import choose_tasks, look_up, look_up_many, read_status

_Notice = Callable[[FoundJob, Sequence[JobStatus]], None]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between two questions to the scheduler
_SILENCE = 1800.0  # seconds for which a scheduler that answered before may stay silent
_GLANCE = 0.25  # seconds between two looks at the files of the script; the scheduler is not asked
_PENDING = (State.QUEUED, State.HELD)


@dataclass(slots=True)
class _WaitOutcome:
    """The result of waiting for one job; `problem` if it will never start."""

    job: FoundJob
    statuses: list[JobStatus] = field(default_factory=list)
    problem: JobStuck | None = None
    is_settled: bool = False
    lost_at: float = 0.0
    was_stuck: bool = False  # at the last look; the scheduler must say it twice


def wait_for(cluster: Cluster, job: FoundJob, *, timeout: float | None = None) -> list[JobStatus]:
    """Wait for one job; raises JobStuck if it will never start, and JobFailed after `timeout`."""
    [outcome] = wait_for_all(cluster, [job], timeout=timeout)
    if outcome.problem is not None:
        raise outcome.problem
    return outcome.statuses


def wait_for_all(
    cluster: Cluster, jobs: Sequence[FoundJob], *, timeout: float | None = None, notice: _Notice | None = None
) -> list[_WaitOutcome]:
    """Wait for all jobs at once; every answer goes to `notice`. Raises JobFailed if one runs longer than `timeout`."""
    end = None if timeout is None else time.monotonic() + timeout
    outcomes = [_WaitOutcome(job) for job in jobs]
    pause, answered = _FIRST_PAUSE, 0.0
    while waiting := [outcome for outcome in outcomes if not outcome.is_settled]:
        try:
            _ask(cluster, waiting)
            answered = time.monotonic()
        except SchedulerFailed:  # a controller that restarts must not end a wait of days
            if not answered or time.monotonic() - answered > _SILENCE:
                raise
        for outcome in waiting:
            if notice is not None:
                notice(outcome.job, outcome.statuses)
            _judge(cluster, outcome)
        waiting = [outcome for outcome in waiting if not outcome.is_settled]
        if any(outcome.was_stuck for outcome in waiting):
            pause = _FIRST_PAUSE  # ask again soon whether it still is
        if waiting:
            _pause([outcome.job for outcome in waiting], pause, end)
            _refuse_late(waiting[0], end)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return outcomes


def explain_stuck(cluster: Cluster, job: FoundJob, statuses: Sequence[JobStatus]) -> JobStuck | None:
    """The error for a job whose tasks have ended or will never start; None while one may start or runs."""
    remaining = [status for status in statuses if not status.state.is_over]
    reasons = [find_obstacle(cluster, job.record, status) for status in remaining]
    if not remaining or not all(reasons):
        return None
    return JobStuck(
        f"job {job.name} will never start: {remaining[0].shown_id} is {remaining[0].state.word}",
        context={"why": reasons[0]},
        hint=f"remove it from the queue: kedge cancel {job.typed_id}",
    )


def require_success(job: FoundJob, statuses: Sequence[JobStatus], explain: Callable[[JobStatus], str]) -> None:
    """Raise JobFailed unless every task of a job completed."""
    failed = [status for status in statuses if status.state is not State.DONE]
    if not failed:
        return
    first, others = failed[0], len(failed) - 1
    context, hint = {"why": explain(first) or first.reason}, ""
    clue = find_failure_clue(job.record, first)
    if clue is not None:
        context |= {"its output says": clue.line, "which means": clue.cause}
        hint = f"{clue.remedy}; "
    what = f"job {job.name}" if len(statuses) == 1 else f"task {first.shown_id} of job {job.name}"
    how = first.outcome if first.state is State.FAILED else f"did not complete: {first.outcome}"
    more = f" ({others} more task{'' if others == 1 else 's'} did not complete)" if others else ""
    raise JobFailed(
        f"{what} {how}{more}",
        context=context,
        hint=f"{hint}see its output: kedge logs {job.typed_id.removesuffix(job.id)}{first.shown_id}",
    )


def has_ended(job: FoundJob) -> bool:
    """Whether the scripts of all its tasks wrote that they ended; the scheduler is not asked."""
    return job.record is not None and have_scripts_ended(job.record)


def _ask(cluster: Cluster, waiting: Sequence[_WaitOutcome]) -> None:
    """Ask the scheduler once for all jobs of kedge, and once more for each other job."""
    records = [outcome.job.record for outcome in waiting if outcome.job.record is not None]
    many = look_up_many(cluster, records) if len(records) > 1 else {}
    for outcome in waiting:
        record = outcome.job.record
        if record is not None and record.key in many:
            outcome.statuses = choose_tasks(outcome.job, many[record.key])
        else:
            outcome.statuses = read_status(cluster, outcome.job)


def _judge(cluster: Cluster, outcome: _WaitOutcome) -> None:
    """Note whether waiting for this job is finished."""
    statuses = outcome.statuses
    if all(status.state.is_over for status in statuses):
        # accounting may be written a little after the queue forgets the job
        outcome.lost_at = outcome.lost_at or time.monotonic()
        is_final = all(status.state.is_final for status in statuses)
        outcome.is_settled = is_final or time.monotonic() - outcome.lost_at > _LONGEST_PAUSE
        return
    problem = explain_stuck(cluster, outcome.job, statuses)
    if problem is not None and outcome.was_stuck:
        outcome.problem, outcome.is_settled = problem, True
    outcome.was_stuck = problem is not None


def find_obstacle(
    cluster: Cluster, record: Record | None, status: JobStatus, seen: frozenset[str] = frozenset()
) -> str:
    """Why a job, or one that it depends on, will never start; empty while it may start."""
    backend = cluster.backend
    if backend.is_stuck(status):
        return backend.explain(status) or status.reason
    if record is None or status.state not in _PENDING or status.id in seen:
        return ""
    for other, state in _list_awaited(cluster, record):
        why = find_obstacle(cluster, other, state, seen | {status.id})
        if why:
            return f"it waits for job {state.shown_id}, which will never start: {why}"
    return ""


def _list_awaited(cluster: Cluster, record: Record) -> Iterator[tuple[Record, JobStatus]]:
    """The pending jobs of kedge that it depends on."""
    try:
        dependencies = decode_job(record.job).dependencies
    except InvalidJob:
        return
    for dependency in dependencies:
        try:
            other = cluster.records.find(dependency.job, record.site)
            statuses = look_up(cluster, other)
        except KedgeError:  # not a job of kedge, or the scheduler does not answer
            continue
        yield from ((other, status) for status in statuses if status.state in _PENDING)


def _refuse_late(outcome: _WaitOutcome, end: float | None) -> None:
    if end is not None and time.monotonic() >= end:
        job = outcome.job
        raise JobFailed(
            f"job {job.name} is still {outcome.statuses[0].state.word} after the timeout",
            hint=f"the job goes on; follow it: kedge status {job.typed_id}",
        )


def _pause(jobs: Sequence[FoundJob], seconds: float, end: float | None) -> None:
    """Wait before the next question to the scheduler; shorter if a script writes that its job has ended."""
    until = time.monotonic() + seconds
    if end is not None:
        until = min(until, end)
    going_on = [job for job in jobs if not has_ended(job)]
    while time.monotonic() < until:
        time.sleep(min(_GLANCE, max(until - time.monotonic(), 0.0)))
        if any(has_ended(job) for job in going_on):
            return
