# SPDX-License-Identifier: BSD-3-Clause
"""Merges the scheduler's answer about a job with what the scripts of its tasks wrote.

A task of which neither knows the end is LOST, never completed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.cluster.job import MOST_INDICES, JobArray
from kedge.cluster.job_state import JobStatus, State
from kedge.errors import InvalidJob
from kedge.jobs.records import Ending, Record

_SIGNALS = 128
_ENDED, _KILLED = 15, 9  # SIGTERM, SIGKILL
_JUST_NOW = 10.0  # seconds; a scheduler may list a job a moment after it took it
_LOST_FOR_GOOD = 86400.0  # seconds; accounting is written by then, if at all
_CANCELLED = "you cancelled it"


def merge(record: Record, listed: Sequence[JobStatus]) -> list[JobStatus]:
    """The status of every task of a job; `listed` is the scheduler's answer, with the user's indices."""
    endings = {ending.index: ending for ending in record.read_endings()}
    if not listed and not endings and not record.was_cancelled(None) and time.time() - record.submitted < _JUST_NOW:
        return [make_status(record, State.QUEUED, reason="just submitted")]
    tasks = [_mend_lost(_add_ending(_fill_in(task, record), endings.get(task.index)), record) for task in listed]
    if not tasks or lacks_tasks(record, tasks):
        known = {index for task in listed for index in indices_of(task)}
        tasks += [_judge(record, index, endings.get(index)) for index in _list_indices(record) if index not in known]
    return sorted(tasks, key=lambda task: task.index or 0)


def lacks_tasks(record: Record, statuses: Sequence[JobStatus]) -> bool:
    """Whether an array has more tasks than these: schedulers forget them one by one."""
    if not record.is_array or any(status.index is None and not status.pending_indices for status in statuses):
        return False  # one status for all tasks
    return sum(len(indices_of(status)) for status in statuses) < count_tasks(record)


def count_tasks(record: Record) -> int:
    """The number of tasks of an array; 1 for any other job."""
    array = record.job.get("array")
    return len(JobArray.parse(str(array))) if array else 1


def is_settled(record: Record, statuses: Sequence[JobStatus]) -> bool:
    """Whether no state can change any more: all are final, or have been lost for a day."""
    if all(status.state.is_final for status in statuses):
        return True
    return all(status.state.is_over for status in statuses) and record.note_lost() > _LOST_FOR_GOOD


def find_ended(record: Record) -> list[JobStatus]:
    """The tasks whose scripts wrote how they ended; the scheduler is not needed.

    A task that ended by SIGTERM is not among them: it may be requeued, which only the scheduler knows.
    """
    return [task for task in merge(record, []) if task.state.is_final and task.exit_code != _SIGNALS + _ENDED]


def have_scripts_ended(record: Record) -> bool:
    """Whether the scripts of all tasks wrote how they ended."""
    endings = record.read_endings()
    return len(endings) >= count_tasks(record) and all(ending.status is not None for ending in endings)


def make_status(record: Record, state: State, reason: str = "") -> JobStatus:
    """A status that does not come from the scheduler."""
    return JobStatus(
        id=record.id or record.key, state=state, raw="", reason=reason, name=record.name, submitted=record.submitted
    )


def _fill_in(status: JobStatus, record: Record) -> JobStatus:
    """The status with the exact name, which a scheduler may have had to change."""
    return replace(status, name=record.name, submitted=status.submitted or record.submitted)


def _list_indices(record: Record) -> Sequence[int | None]:
    array = record.job.get("array")
    return JobArray.parse(str(array)).indices if array else (None,)


def indices_of(status: JobStatus) -> Sequence[int | None]:
    """The tasks that a status stands for: one, or all pending ones of an array."""
    if not status.pending_indices:
        return (status.index,)
    try:
        return JobArray.parse(status.pending_indices).indices
    except InvalidJob:  # cut short by the scheduler: assume that no task is missing
        return range(MOST_INDICES)


def _add_ending(status: JobStatus, ending: Ending | None) -> JobStatus:
    """Add what the script knows better: the attempts; and accounting mixes up exit codes above 128."""
    if ending is None:
        return status
    status = replace(status, attempts=ending.attempts)
    if not ending.status or status.state is not State.FAILED or status.signal:
        return status
    if ending.status == status.exit_code and "exit code" not in dict(status.details):
        return status
    return replace(
        status, exit_code=ending.status, details=tuple(pair for pair in status.details if pair[0] != "exit code")
    )


def _mend_lost(status: JobStatus, record: Record) -> JobStatus:
    """Accounting may know the job but not its end: its user may have cancelled it."""
    if status.state is State.LOST and record.was_cancelled(status.index):
        return replace(status, state=State.CANCELLED, reason=_CANCELLED)
    return status


def _judge(record: Record, index: int | None, ending: Ending | None) -> JobStatus:
    """The state of a task that the scheduler does not know, from what its script wrote."""
    lost = replace(make_status(record, State.LOST), index=index)
    was_cancelled = record.was_cancelled(index)
    if ending is None:
        if was_cancelled:
            return replace(lost, state=State.CANCELLED, reason=_CANCELLED)
        return replace(lost, reason="the scheduler no longer knows it, and it never started")
    seen = replace(lost, nodes=ending.host, started=ending.began, ended=ending.ended, attempts=ending.attempts)
    if was_cancelled and ending.status in (None, _SIGNALS + _ENDED, _SIGNALS + _KILLED):
        return replace(seen, state=State.CANCELLED, reason=_CANCELLED)
    if ending.status is None:
        reason = "it started but wrote no end, and there is no accounting: it was killed, or its node failed"
        return replace(seen, reason=reason)
    return _judge_status(seen, ending, ending.status, record.job.get("time"))


def _judge_status(seen: JobStatus, ending: Ending, status: int, limit: object) -> JobStatus:
    if status == 0:
        return replace(seen, state=State.DONE, exit_code=0)
    lasted = (ending.ended or 0.0) - (ending.began or 0.0)
    if status == _SIGNALS + _ENDED and isinstance(limit, int) and ending.began and lasted >= limit - 5:
        return replace(seen, state=State.TIMEOUT, signal=_ENDED, time_limit=limit)
    return replace(seen, state=State.FAILED, exit_code=status)
