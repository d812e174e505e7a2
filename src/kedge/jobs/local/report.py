# SPDX-License-Identifier: BSD-3-Clause
"""What the queue tells of its jobs: one entry per task that began, and one for all tasks of a job that wait."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from kedge.base.frozen import replace
from kedge.cluster.job import IndexRange
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.memory import shorten_memory
from kedge.cluster.output_pattern import fill_pattern
from kedge.jobs.local.planning import NEVER, TOO_LARGE, Reason
from kedge.jobs.local.queue_files import DONE, FAILED, RUNNING, StoredJob, TaskHistory, read_cancel_time, read_task
from kedge.jobs.local.take_turn import Survey


def describe_job(job: StoredJob, survey: Survey) -> list[JobStatus]:
    """Return the state of each task of a job, in the order of its indices."""
    statuses = [_describe_task(job, kind, index) for kind in (RUNNING, DONE, FAILED) for index in job.tasks[kind]]
    statuses += [_describe_unbegun(job, index) for index in job.unbegun]
    statuses.sort(key=lambda each: each.index or 0)
    waiting = job.waiting
    return [*statuses, _describe_waiting(job, waiting, survey)] if waiting else statuses


def _make_status(job: StoredJob, index: int | None, state: State) -> JobStatus:
    request = job.request
    return JobStatus(
        id=str(job.id),
        index=index,
        state=state,
        raw=str(state),
        name=request.name,
        user=request.user,
        queue="local",
        submitted=request.submitted,
        time_limit=request.time,
        details=_list_details(job, index),
    )


def _list_details(job: StoredJob, index: int | None) -> tuple[tuple[str, str], ...]:
    request = job.request
    wants = [f"{request.cpus} CPU" + ("s" if request.cpus > 1 else "")]
    wants += [shorten_memory(request.memory)] if request.memory else []
    wants += [f"{request.gpus} GPU" + ("s" if request.gpus > 1 else "")] if request.gpus else []
    details = [("asks for", "all CPUs" if request.is_exclusive else ", ".join(wants)), ("folder", request.directory)]
    for label, pattern in (("output", request.output), ("error", request.error)):
        if pattern and not (request.array and index is None):
            details.append((label, fill_pattern(pattern, name=request.name, id=str(job.id), index=index)))
    return tuple(details)


def _describe_task(job: StoredJob, kind: str, index: int | None) -> JobStatus:
    if kind == RUNNING:  # it may just have ended
        kind = next((each for each in (RUNNING, DONE, FAILED) if job.path(each, index).exists()), kind)
    history = read_task(job.path(kind, index))
    status = _make_status(job, index, _find_state(kind, history))
    gpus = (("GPUs", ",".join(history.gpus)),) if history.gpus else ()
    return replace(
        status,
        reason=history.reason,
        nodes=os.uname().nodename,
        exit_code=history.exit_code,
        signal=history.signal,
        started=history.begun or history.granted,
        ended=history.ended,
        details=(*status.details, *gpus),
    )


def _find_state(kind: str, history: TaskHistory) -> State:
    if kind == RUNNING:
        return State.COMPLETING if history.ending else State.RUNNING
    with contextlib.suppress(ValueError):
        return State(history.state)
    return State.DONE if kind == DONE else State.FAILED


def _describe_unbegun(job: StoredJob, index: int | None) -> JobStatus:
    status = _make_status(job, index, State.CANCELLED)
    return replace(status, ended=read_cancel_time(job, index), reason="it was cancelled before it started")


def _describe_waiting(job: StoredJob, waiting: Sequence[int | None], survey: Survey) -> JobStatus:
    # without a reason it is about to begin
    reason = survey.plan.reasons.get(job.id, Reason(""))
    status = _make_status(job, None, State.HELD if reason.word in (NEVER, TOO_LARGE) else State.QUEUED)
    details = [("lacks", " ".join(reason.lacks))] if reason.lacks else []
    details += [("waits for", " ".join(reason.others))] if reason.others else []
    details += [("begins", str(int(job.request.begin)))] if job.request.begin else []
    indices = compress_indices(index for index in waiting if index is not None)
    return replace(status, reason=reason.word, pending_indices=indices, details=(*status.details, *details))


def compress_indices(indices: Iterable[int]) -> str:
    """`0-3,7`: neighbours as ranges."""
    ranges: list[IndexRange] = []
    for index in sorted(indices):
        if ranges and ranges[-1].last + 1 == index:
            ranges[-1] = IndexRange(ranges[-1].first, index)
        else:
            ranges.append(IndexRange(index, index))
    return ",".join(map(str, ranges))
