# SPDX-License-Identifier: BSD-3-Clause
"""Jobs by the words users call them: found, looked at, ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kedge.errors import JobFailed, JobNotFound, UsageError
from kedge.frozen import frozen
from kedge.jobs.records import Record
from kedge.model.job import JobArray
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.clues import find_job_clue
from kedge.ops.jobs.clusters import Cluster
from kedge.ops.jobs.endings import have_scripts_ended
from kedge.ops.jobs.status import look_up, look_up_foreign, recover_ids
from kedge.schedulers.advice import is_unreachable
from kedge.schedulers.array_numbers import can_renumber, find_number


@frozen
class FoundJob:
    """A job by its id, with its record where kedge submitted it; `index` where one task was named."""

    id: str
    record: Record | None
    index: int | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        id = self.id or (self.record.key if self.record else "")
        shown = id if self.index is None else f"{id}_{self.index}"
        return f"{shown} ({self.record.name})" if self.record else shown

    @property
    def typed_id(self) -> str:
        """Its id as commands take it anywhere."""
        return self.record.typed_id if self.record else self.id


def find_job(cluster: Cluster, word: str) -> FoundJob:
    """`12`, `12_3`, a name, a record's key, or `last`."""
    recover_ids(cluster)
    try:
        return _from_record(cluster.records.find(word, cluster.site.name))
    except JobNotFound:
        id, underscore, index = word.rpartition("_")
        if underscore and index.isdecimal():
            found = find_job(cluster, id)
            return FoundJob(found.id, found.record, int(index))
        if word[:1].isdecimal():
            return FoundJob(word, None)
        raise


def read_status(cluster: Cluster, job: FoundJob) -> list[JobStatus]:
    """Every task of it, or the one that was named."""
    return choose_tasks(job, look_up(cluster, job.record) if job.record else look_up_foreign(cluster, job.id))


def choose_tasks(job: FoundJob, found: list[JobStatus]) -> list[JobStatus]:
    """Of all tasks those that were named."""
    if job.index is None:
        return found
    chosen = [each for each in found if each.index == job.index]
    waiting = [each for each in found if each.pending_indices]
    if not chosen and not waiting:
        raise JobNotFound(f"the job {job.id} has no task {job.index}", hint=f"'kedge status {job.id}' shows its tasks")
    return chosen or waiting


def cancel_jobs(cluster: Cluster, jobs: Sequence[FoundJob], signal: str = "") -> None:
    """End jobs, or send them a signal; those that are over already are no mistake."""
    ids = [_name_task(job) for job in jobs]
    if not all(job.id for job in jobs):
        raise UsageError("a job without an id cannot be cancelled: its submission did not finish")
    for job in jobs:
        if job.record is None:
            look_up_foreign(cluster, job.id)  # some schedulers say nothing of a job that they do not know
    marked = [] if signal else [job for job in jobs if job.record is not None]
    _mark_cancelled(marked)  # before: a scheduler may forget a job that never began at once
    done = cluster.call(cluster.backend.cancel_argv(ids, signal))
    if not done.status and b"error" not in done.errors:
        return
    if is_unreachable(done.errors.decode(errors="replace")) or not all(_is_over(cluster, job) for job in jobs):
        _mark_cancelled(marked, undo=True)
        raise cluster.explain_failure(done)


def _mark_cancelled(jobs: Sequence[FoundJob], *, undo: bool = False) -> None:
    for job in jobs:
        if job.record is not None:
            job.record.note_cancelled(job.index, undo=undo)


def _name_task(job: FoundJob) -> str:
    """`12_3`, with the number by which the scheduler counts the task."""
    if job.index is None or job.record is None or not job.record.is_array or not can_renumber(job.record.scheduler):
        return job.id if job.index is None else f"{job.id}_{job.index}"
    array = JobArray.parse(str(job.record.job["array"]))
    if job.index not in array.indices:
        raise JobNotFound(f"the job {job.id} has no task {job.index}", hint=f"its tasks are {array}")
    number = find_number(job.record.scheduler, array, job.index)
    return job.id if number is None else f"{job.id}_{number}"


def require_success(job: FoundJob, statuses: Sequence[JobStatus], explain: Callable[[JobStatus], str]) -> None:
    """Raise JobFailed unless every task of a job is done."""
    wrong = [each for each in statuses if each.state is not State.DONE]
    if wrong:
        others = len(wrong) - 1
        more = f", and {others} more task{'' if others == 1 else 's'}" if others else ""
        context, hint = {"why": explain(wrong[0]) or wrong[0].reason}, ""
        clue = find_job_clue(job.record, wrong[0])
        if clue is not None:
            context |= {"its output says": clue.line, "which means": clue.cause}
            hint = f"{clue.remedy}; "
        raise JobFailed(
            f"the job {job.name} did not end well: {wrong[0].shown_id} {wrong[0].state}{more}",
            context=context,
            hint=f"{hint}'kedge logs {job.typed_id.removesuffix(job.id)}{wrong[0].shown_id}' shows what it wrote",
        )


def has_ended(job: FoundJob) -> bool:
    """Whether its scripts say that all of it is over; costs the scheduler nothing."""
    return job.record is not None and have_scripts_ended(job.record)


def _is_over(cluster: Cluster, job: FoundJob) -> bool:
    try:
        return all(each.state.is_over for each in read_status(cluster, job))
    except JobNotFound:
        return False


def _from_record(record: Record) -> FoundJob:
    return FoundJob(record.id, record)
