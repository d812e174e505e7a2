# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for jobs until nothing more is to be expected of them: they are over, lost, or never begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kedge.errors import InvalidJob, JobFailed, JobStuck, KedgeError, SchedulerFailed
from kedge.jobs.encoding import decode_job
from kedge.jobs.records import Record
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.cluster import Cluster
from kedge.ops.jobs.failure_clues import find_failure_clue
from kedge.ops.jobs.find_job import FoundJob
from kedge.ops.jobs.merge_status import have_scripts_ended
from kedge.ops.jobs.status import choose_tasks, look_up, look_up_many, read_status

_Notice = Callable[[FoundJob, Sequence[JobStatus]], None]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between two questions to the scheduler
_SILENCE = 1800.0  # seconds for which a scheduler that has answered before may be silent
_GLANCE = 0.25  # seconds between two looks at what the script writes, which costs the scheduler nothing
_WAITING = (State.QUEUED, State.HELD)


@dataclass(slots=True)
class _WaitOutcome:
    """What became of one job that was waited for; `problem` where it never begins."""

    job: FoundJob
    statuses: list[JobStatus] = field(default_factory=list)
    problem: JobStuck | None = None
    is_settled: bool = False
    lost_at: float = 0.0
    was_stuck: bool = False  # at the last look: what a scheduler says for a moment only is not believed


def wait_for(cluster: Cluster, job: FoundJob, *, timeout: float | None = None) -> list[JobStatus]:
    """Wait for one job; raises JobStuck when it never begins, and JobFailed after `timeout`."""
    [outcome] = wait_for_all(cluster, [job], timeout=timeout)
    if outcome.problem is not None:
        raise outcome.problem
    return outcome.statuses


def wait_for_all(
    cluster: Cluster, jobs: Sequence[FoundJob], *, timeout: float | None = None, notice: _Notice | None = None
) -> list[_WaitOutcome]:
    """Wait for all of them at once; `notice` hears every answer. What is not over after `timeout` raises JobFailed."""
    end = None if timeout is None else time.monotonic() + timeout
    outcomes = [_WaitOutcome(job) for job in jobs]
    pause, answered = _FIRST_PAUSE, 0.0
    while waiting := [each for each in outcomes if not each.is_settled]:
        try:
            _ask(cluster, waiting)
            answered = time.monotonic()
        except SchedulerFailed:  # a controller that restarts must not end a wait of days
            if not answered or time.monotonic() - answered > _SILENCE:
                raise
        for each in waiting:
            if notice is not None:
                notice(each.job, each.statuses)
            _judge(cluster, each)
        waiting = [each for each in waiting if not each.is_settled]
        if any(each.was_stuck for each in waiting):
            pause = _FIRST_PAUSE  # is it still so?
        if waiting:
            _pause([each.job for each in waiting], pause, end)
            _refuse_late(waiting[0], end)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return outcomes


def explain_stuck(cluster: Cluster, job: FoundJob, statuses: Sequence[JobStatus]) -> JobStuck | None:
    """The error for a job of which all that is not over never begins; None while there is hope."""
    left = [each for each in statuses if not each.state.is_over]
    reasons = [find_obstacle(cluster, job.record, each) for each in left]
    if not left or not all(reasons):
        return None
    return JobStuck(
        f"the job {job.name} never begins by itself: {left[0].shown_id} {left[0].state}",
        context={"why": reasons[0]},
        hint=f"'kedge cancel {job.typed_id}' removes it from the queue",
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
    """One question for all, and one more for each that kedge did not submit."""
    records = [each.job.record for each in waiting if each.job.record is not None]
    many = look_up_many(cluster, records) if len(records) > 1 else {}
    for each in waiting:
        record = each.job.record
        if record is not None and record.key in many:
            each.statuses = choose_tasks(each.job, many[record.key])
        else:
            each.statuses = read_status(cluster, each.job)


def _judge(cluster: Cluster, outcome: _WaitOutcome) -> None:
    """Whether nothing more is to be expected of a job."""
    statuses = outcome.statuses
    if all(each.state.is_over for each in statuses):
        # accounts may be written a little later than the queue forgets
        outcome.lost_at = outcome.lost_at or time.monotonic()
        is_final = all(each.state.is_final for each in statuses)
        outcome.is_settled = is_final or time.monotonic() - outcome.lost_at > _LONGEST_PAUSE
        return
    problem = explain_stuck(cluster, outcome.job, statuses)
    if problem is not None and outcome.was_stuck:
        outcome.problem, outcome.is_settled = problem, True
    outcome.was_stuck = problem is not None


def find_obstacle(
    cluster: Cluster, record: Record | None, status: JobStatus, seen: frozenset[str] = frozenset()
) -> str:
    """Why it never begins, itself or because a job that it waits for never does; empty while it may begin."""
    backend = cluster.backend
    if backend.is_stuck(status):
        return backend.explain(status) or status.reason
    if record is None or status.state not in _WAITING or status.id in seen:
        return ""
    for other, state in _list_awaited(cluster, record):
        why = find_obstacle(cluster, other, state, seen | {status.id})
        if why:
            return f"it waits for job {state.shown_id}, which never begins: {why}"
    return ""


def _list_awaited(cluster: Cluster, record: Record) -> Iterator[tuple[Record, JobStatus]]:
    """Jobs of kedge's that it waits for, as far as they wait themselves."""
    try:
        awaited = decode_job(record.job).dependencies
    except InvalidJob:
        return
    for each in awaited:
        try:
            other = cluster.records.find(each.job, record.site)
            statuses = look_up(cluster, other)
        except KedgeError:  # it is not ours, or nobody answers: then nothing can be said of it
            continue
        yield from ((other, status) for status in statuses if status.state in _WAITING)


def _refuse_late(outcome: _WaitOutcome, end: float | None) -> None:
    if end is not None and time.monotonic() >= end:
        job = outcome.job
        raise JobFailed(
            f"the job {job.name} is not over in time: {outcome.statuses[0].state}",
            hint=f"it goes on; 'kedge status {job.typed_id}' says how it is",
        )


def _pause(jobs: Sequence[FoundJob], seconds: float, end: float | None) -> None:
    """Wait before the scheduler is asked again; shorter when a script says that its job is over."""
    until = time.monotonic() + seconds
    if end is not None:
        until = min(until, end)
    going_on = [job for job in jobs if not has_ended(job)]
    while time.monotonic() < until:
        time.sleep(min(_GLANCE, max(until - time.monotonic(), 0.0)))
        if any(has_ended(job) for job in going_on):
            return
