# SPDX-License-Identifier: BSD-3-Clause
"""Cancels jobs or single tasks of arrays, or sends them a signal."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.cluster.job import JobArray
from kedge.cluster.schedulers.advice import is_unreachable
from kedge.cluster.schedulers.array_numbers import can_renumber, find_number
from kedge.cluster.schedulers.choose import find_facts
from kedge.errors import JobNotFound, UsageError
from kedge.jobs.cluster import Cluster
from kedge.jobs.find_job import FoundJob
from kedge.jobs.status import look_up_foreign, read_status
from kedge.system.process_tree import parse_signal


def cancel_jobs(cluster: Cluster, jobs: Sequence[FoundJob], signal: str = "") -> None:
    """Cancel jobs, or send them a signal; a job that is over already is no error."""
    if not all(job.id for job in jobs):
        raise UsageError("a job without an id cannot be cancelled: its submission did not finish")
    for job in jobs:
        if job.record is None:
            look_up_foreign(cluster, job.id)  # some schedulers report no error for an unknown job
    calls = _list_calls(cluster, jobs, signal)
    marked = [] if signal else [job for job in jobs if job.record is not None]
    _mark_cancelled(marked)  # before: a scheduler may forget a pending job at once
    for argv in calls:
        done = cluster.call(argv)
        if not done.status and b"error" not in done.errors:
            continue
        if is_unreachable(done.errors.decode(errors="replace")) or not all(_is_over(cluster, job) for job in jobs):
            _mark_cancelled(marked, undo=True)
            raise cluster.explain_failure(done)


def _list_calls(cluster: Cluster, jobs: Sequence[FoundJob], signal: str) -> list[list[str]]:
    """The scheduler's commands; a script that listens is woken, and sends its command the signal itself."""
    carrier = find_facts(cluster.backend.name).signal_carrier
    name = parse_signal(signal).name.removeprefix("SIG") if signal and carrier else ""
    ids: dict[str, list[str]] = {}
    for job in jobs:
        is_woken = name and job.record is not None and job.record.leave_signal(job.index, name)
        ids.setdefault(carrier if is_woken else signal, []).append(_spell_task(job))
    return [cluster.backend.cancel_argv(each, word) for word, each in ids.items()]


def _mark_cancelled(jobs: Sequence[FoundJob], *, undo: bool = False) -> None:
    for job in jobs:
        if job.record is not None:
            job.record.note_cancelled(job.index, undo=undo)


def _spell_task(job: FoundJob) -> str:
    """`12_3`, with the number that the scheduler gives the task."""
    if job.index is None or job.record is None or not job.record.is_array or not can_renumber(job.record.scheduler):
        return job.id if job.index is None else f"{job.id}_{job.index}"
    array = JobArray.parse(str(job.record.job["array"]))
    if job.index not in array.indices:
        raise JobNotFound(f"job {job.id} has no task {job.index}", hint=f"its tasks are {array}")
    number = find_number(job.record.scheduler, array, job.index)
    return job.id if number is None else f"{job.id}_{number}"


def _is_over(cluster: Cluster, job: FoundJob) -> bool:
    try:
        return all(status.state.is_over for status in read_status(cluster, job))
    except JobNotFound:
        return False
