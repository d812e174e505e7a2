# SPDX-License-Identifier: BSD-3-Clause
"""The last words about a job: the scheduler's, its script's where that knows better, or that it is lost.

A task that nobody can tell of is LOST, never done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kedge.errors import InvalidJob
from kedge.frozen import replace
from kedge.jobs.records import Ending, Record
from kedge.model.job import MOST_INDICES, JobArray
from kedge.model.job_state import JobStatus, State

_SIGNALS = 128
_ENDED, _KILLED = 15, 9  # SIGTERM, SIGKILL
_JUST_NOW = 10.0  # seconds; a scheduler may list a job a moment after it took it
_LOST_FOR_GOOD = 86400.0  # seconds; accounts that still say something have been written by then
_CANCELLED = "you cancelled it"


def merge(record: Record, told: Sequence[JobStatus]) -> list[JobStatus]:
    """Every task of a job; `told` is what the scheduler says, with the user's indices."""
    endings = {each.index: each for each in record.read_endings()}
    if not told and not endings and not record.was_cancelled(None) and time.time() - record.submitted < _JUST_NOW:
        return [make_status(record, State.QUEUED, reason="just submitted")]
    found = [_mend_lost(_add_ending(_fill_in(each, record), endings.get(each.index)), record) for each in told]
    if found and not lacks_tasks(record, found):
        return sorted(found, key=lambda each: each.index or 0)
    known = {index for each in told for index in indices_of(each)}
    found += [_judge(record, index, endings.get(index)) for index in _list_indices(record) if index not in known]
    return sorted(found, key=lambda each: each.index or 0)


def lacks_tasks(record: Record, statuses: Sequence[JobStatus]) -> bool:
    """Whether an array has more tasks than these: schedulers forget them one by one."""
    if not record.is_array or any(each.index is None and not each.pending_indices for each in statuses):
        return False  # one word for all of them
    return sum(len(indices_of(each)) for each in statuses) < count_tasks(record)


def count_tasks(record: Record) -> int:
    """How many tasks an array has; 1 for a job that is none."""
    array = record.job.get("array")
    return len(JobArray.parse(str(array))) if array else 1


def is_settled(record: Record, statuses: Sequence[JobStatus]) -> bool:
    """Whether nothing will change any more: all is final, or what is lost has been lost for long."""
    if all(each.state.is_final for each in statuses):
        return True
    return all(each.state.is_over for each in statuses) and record.note_lost() > _LOST_FOR_GOOD


def find_told_alone(record: Record) -> list[JobStatus]:
    """The tasks of which their scripts say all, so that no scheduler is needed.

    A script that was asked to end may have been put back into the queue, which only the scheduler knows.
    """
    found = merge(record, [])
    return [each for each in found if each.state.is_final and each.exit_code != _SIGNALS + _ENDED]


def have_scripts_ended(record: Record) -> bool:
    """Whether all its scripts said how they ended."""
    endings = record.read_endings()
    return len(endings) >= count_tasks(record) and all(each.status is not None for each in endings)


def make_status(record: Record, state: State, reason: str = "") -> JobStatus:
    """A status that no scheduler told."""
    return JobStatus(
        id=record.id or record.key, state=state, raw="", reason=reason, name=record.name, submitted=record.submitted
    )


def _fill_in(status: JobStatus, record: Record) -> JobStatus:
    """With what only we know: the exact name, which a scheduler may have had to change."""
    return replace(status, name=record.name, submitted=status.submitted or record.submitted)


def _list_indices(record: Record) -> Sequence[int | None]:
    array = record.job.get("array")
    return JobArray.parse(str(array)).indices if array else (None,)


def indices_of(status: JobStatus) -> Sequence[int | None]:
    """The tasks that a status is of: one, or those of an array that wait."""
    if not status.pending_indices:
        return (status.index,)
    try:
        return JobArray.parse(status.pending_indices).indices
    except InvalidJob:  # cut short by the scheduler: nothing is missing as far as one can see
        return range(MOST_INDICES)


def _add_ending(status: JobStatus, ending: Ending | None) -> JobStatus:
    """Where the script knows better: how often it began; and accounts mix up exit codes above 128."""
    if ending is None:
        return status
    status = replace(status, attempts=ending.attempts)
    if not ending.status or status.state is not State.FAILED or status.signal:
        return status
    if ending.status == status.exit_code and "exit code" not in dict(status.details):
        return status
    return replace(
        status, exit_code=ending.status, details=tuple(each for each in status.details if each[0] != "exit code")
    )


def _mend_lost(status: JobStatus, record: Record) -> JobStatus:
    """Accounts may know that there was a job, and not how it ended: its user may have cancelled it."""
    if status.state is State.LOST and record.was_cancelled(status.index):
        return replace(status, state=State.CANCELLED, reason=_CANCELLED)
    return status


def _judge(record: Record, index: int | None, ending: Ending | None) -> JobStatus:
    """The state of a job or task that the scheduler knows nothing of, from what its script wrote."""
    lost = replace(make_status(record, State.LOST), index=index)
    was_cancelled = record.was_cancelled(index)
    if ending is None:
        if was_cancelled:
            return replace(lost, state=State.CANCELLED, reason=_CANCELLED)
        return replace(lost, reason="the scheduler does not know it any more, and it never began")
    seen = replace(lost, nodes=ending.host, started=ending.began, ended=ending.ended, attempts=ending.attempts)
    if was_cancelled and ending.status in (None, _SIGNALS + _ENDED, _SIGNALS + _KILLED):
        return replace(seen, state=State.CANCELLED, reason=_CANCELLED)
    if ending.status is None:
        reason = "it began and did not end by itself, and the scheduler keeps no accounts: killed, or its node failed"
        return replace(seen, reason=reason)
    return _judge_status(seen, ending, ending.status, record.job.get("time"))


def _judge_status(seen: JobStatus, ending: Ending, status: int, limit: object) -> JobStatus:
    if status == 0:
        return replace(seen, state=State.DONE, exit_code=0)
    lasted = (ending.ended or 0.0) - (ending.began or 0.0)
    if status == _SIGNALS + _ENDED and isinstance(limit, int) and ending.began and lasted >= limit - 5:
        return replace(seen, state=State.TIMEOUT, signal=_ENDED, time_limit=limit)
    return replace(seen, state=State.FAILED, exit_code=status)
