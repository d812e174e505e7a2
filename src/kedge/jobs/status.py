# SPDX-License-Identifier: BSD-3-Clause
"""The state of jobs: kedge asks the scheduler once, then its accounting for jobs it no longer lists."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kedge.base.frozen import frozen, replace
from kedge.cluster.job import JobArray
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.choose import find_facts
from kedge.errors import FileProblem, JobNotFound, SchedulerFailed
from kedge.jobs.cluster import Cluster
from kedge.jobs.merge_status import (
    count_tasks,
    find_ended,
    indices_of,
    is_settled,
    lacks_tasks,
    make_status,
    merge,
)
from kedge.jobs.records import Record
from kedge.jobs.submitted_ids import recover_id, recover_ids

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from kedge.jobs.find_job import FoundJob  # lists of jobs need no search

BEING_CANCELLED = "you cancelled it; the scheduler is ending it"
_RECENT = 86400.0  # seconds; jobs that ended before are listed with --all only
_CLOSE_AT_ONCE = 200  # records that one survey closes; the others can wait


@frozen
class JobView:
    """One line of `kedge jobs`: a job, or a task of an array."""

    status: JobStatus
    key: str = ""  # of its record; empty: it was not submitted with kedge


def survey(cluster: Cluster, *, everything: bool = False) -> list[JobView]:
    """Return all jobs of the user, newest first: those the scheduler lists, and those of kedge that it forgot."""
    listed = _group(_list_jobs(cluster))
    recover_ids(cluster)
    ours = cluster.records.list_ids(cluster.site.name)
    ended = cluster.records.list_ended(cluster.site.name, 0.0 if everything else time.time() - _RECENT)
    listed = _restore_listed(cluster, listed, {**ended, **ours})
    views = [JobView(status, ours.get(id, ended.get(id, ""))) for id, tasks in listed.items() for status in tasks]
    partly = _find_partly_listed(cluster, listed, ours)
    views = [_view_cancelling(cluster, view) for view in views if view.status.id not in partly]
    forgotten = _read_records(cluster, {id: key for id, key in ours.items() if id not in listed})
    over = _read_records(cluster, {id: key for id, key in ended.items() if id not in listed})
    finals = [(record, record.read_final()) for record in over]
    forgotten += [record for record, final in finals if not final]  # they were started again
    for record, statuses in _resolve_forgotten(cluster, [*forgotten, *partly.values()], listed):
        views += [JobView(status, record.key) for status in statuses]
    views += [JobView(status, record.key) for record, final in finals for status in final]
    _close_listed(cluster, listed, ours)
    views.sort(key=lambda view: view.status.index or 0)
    return sorted(views, key=lambda view: (view.status.submitted or 0.0, view.status.id), reverse=True)


def _view_cancelling(cluster: Cluster, view: JobView) -> JobView:
    if not view.key or view.status.state.is_over or not cluster.records.has_cancelled(view.key):
        return view
    records = _read_records(cluster, {view.status.id: view.key})
    return replace(view, status=_note_cancelling(records[0], view.status)) if records else view


def read_status(cluster: Cluster, job: FoundJob) -> list[JobStatus]:
    """The status of every task of a job, or of the one task that the user named."""
    return choose_tasks(job, look_up(cluster, job.record) if job.record else look_up_foreign(cluster, job.id))


def choose_tasks(job: FoundJob, statuses: list[JobStatus]) -> list[JobStatus]:
    """Return those of all tasks that the user named."""
    if job.index is None:
        return statuses
    chosen = [status for status in statuses if status.index == job.index]
    pending = [status for status in statuses if status.pending_indices]
    if not chosen and not pending:
        raise JobNotFound(f"job {job.id} has no task {job.index}", hint=f"list its tasks: kedge status {job.typed_id}")
    return chosen or pending


def look_up(cluster: Cluster, record: Record) -> list[JobStatus]:
    """The status of every task of a job that kedge submitted."""
    final = record.read_final()
    if final:
        return final
    if not record.id:
        named = recover_id(record, cluster)
        if named is None:
            return [make_status(record, State.LOST, reason="its submission did not finish")]
        record = named
    try:
        listed = _restore(record, _look_closely(cluster, record.id))
    except SchedulerFailed:
        ended = find_ended(record)
        if len(ended) < count_tasks(record):
            raise
        return ended
    if not listed or lacks_tasks(record, listed):
        return _resolve_forgotten(cluster, [record], {record.id: listed})[0][1]
    statuses = merge(record, listed)
    if is_settled(record, statuses):
        cluster.records.close(record, statuses)
    return [_note_cancelling(record, status) for status in statuses]


def _note_cancelling(record: Record, status: JobStatus) -> JobStatus:
    """Show a cancelled job as ending, though the scheduler may list it for some more seconds."""
    if status.state.is_over or not record.was_cancelled(status.index):
        return status
    return replace(status, state=State.COMPLETING, reason=BEING_CANCELLED)


def look_up_many(cluster: Cluster, records: Sequence[Record]) -> dict[str, list[JobStatus]]:
    """The status of several jobs of kedge, by the keys of their records; one question for all that have not ended.

    Ended jobs are asked about one by one; accounting is asked once for all that the scheduler forgot.
    """
    try:
        listed = _group(_list_jobs(cluster))
    except SchedulerFailed:  # the scripts may have written it
        return {record.key: look_up(cluster, record) for record in records}
    known, forgotten = {}, []
    for record in records:
        tasks = _restore(record, listed.get(record.id, []))
        if tasks and not lacks_tasks(record, tasks) and not all(task.state.is_over for task in tasks):
            known[record.key] = merge(record, tasks)
        elif record.id and not tasks and not record.read_final():
            forgotten.append(record)
        else:
            known[record.key] = look_up(cluster, record)
    return known | {record.key: statuses for record, statuses in _resolve_forgotten(cluster, forgotten)}


def look_up_foreign(cluster: Cluster, id: str) -> list[JobStatus]:
    """The status of a job that was not submitted with kedge."""
    statuses = _look_closely(cluster, id)
    if not statuses:
        statuses = _ask_history(cluster, [id], time.time() - 30 * _RECENT).get(id, [])
    if not statuses:
        raise JobNotFound(
            f"job '{id}' not found, neither in kedge's records nor by {cluster.backend.name}",
            hint="list your jobs: kedge jobs --all; for another cluster add --site",
        )
    return statuses


def _resolve_forgotten(
    cluster: Cluster, records: Sequence[Record], listed: Mapping[str, list[JobStatus]] | None = None
) -> list[tuple[Record, list[JobStatus]]]:
    """The status of jobs that the scheduler no longer lists: from accounting, else from what their scripts wrote.

    `listed` has the tasks that it still lists, of arrays of which it forgot others.
    """
    if not records:
        return []
    since = min(record.submitted for record in records) - 3600  # clocks of two hosts differ
    accounted = _ask_history(cluster, [record.id for record in records], since)
    resolved = []
    for record in records:
        known = {task.shown_id: task for task in _restore(record, accounted.get(record.id, []))}
        if listed and record.id in listed:  # the queue knows better than accounting which tasks are pending again
            queued = {index for task in listed[record.id] for index in indices_of(task)}
            known = {
                shown: task for shown, task in known.items() if not task.pending_indices and task.index not in queued
            }
            known |= {task.shown_id: task for task in listed[record.id]}
        statuses = merge(record, list(known.values()))
        if is_settled(record, statuses):
            cluster.records.close(record, statuses)
        resolved.append((record, statuses))
    return resolved


def forget_old(cluster: Cluster, days: float) -> int:
    """Remove the records of jobs that ended more than `days` ago; returns how many."""
    recent = cluster.records.list_ended(cluster.site.name, time.time() - days * 86400)
    old = {id: key for id, key in cluster.records.list_ended(cluster.site.name).items() if id not in recent}
    removed = _read_records(cluster, old)
    for key in cluster.records.list_new():  # never submitted: no id was found
        with contextlib.suppress(FileProblem):
            record = cluster.records.read(key, "")
            if record.site == cluster.site.name and record.submitted < time.time() - days * 86400:
                removed.append(record)
    for record in removed:
        cluster.records.forget(record)
    return len(removed)


def _list_jobs(cluster: Cluster) -> list[JobStatus]:
    return cluster.backend.parse_list(cluster.ask(cluster.backend.list_query(cluster.user)) or "")


def _ask_detail(cluster: Cluster, id: str) -> list[JobStatus]:
    query = cluster.backend.detail_query(id)
    output = cluster.ask(query) if query is not None else None
    return cluster.backend.parse_detail(output) if output else []


def _look_closely(cluster: Cluster, id: str) -> list[JobStatus]:
    """What the scheduler says of one job; if its details have no state, with the state from the list."""
    detail = _ask_detail(cluster, id)
    if detail and all(status.raw for status in detail):
        return detail
    listed = _group(_list_jobs(cluster)).get(id, [])
    if not detail:
        return listed
    more = detail[0]
    return [
        replace(
            status,
            reason=status.reason or more.reason,
            submitted=status.submitted or more.submitted,
            time_limit=status.time_limit or more.time_limit,
            details=(*status.details, *more.details),
        )
        for status in listed
    ]


def _restore(record: Record, statuses: Sequence[JobStatus]) -> list[JobStatus]:
    """The statuses with the user's array indices, if the scheduler numbers tasks its own way."""
    if not record.is_array or find_facts(record.scheduler).has_array_lists:
        return list(statuses)
    from kedge.cluster.schedulers.array_numbers import (
        restore_indices,  # late: only for arrays that the scheduler renumbers
    )

    return restore_indices(record.scheduler, JobArray.parse(str(record.job["array"])), statuses)


def _restore_listed(
    cluster: Cluster, listed: Mapping[str, list[JobStatus]], keys: Mapping[str, str]
) -> dict[str, list[JobStatus]]:
    if find_facts(cluster.backend.name).has_array_lists:
        return dict(listed)
    records = _read_records(cluster, {id: keys[id] for id in listed if id in keys and _has_tasks(listed[id])})
    return {**listed, **{record.id: _restore(record, listed[record.id]) for record in records}}


def _has_tasks(statuses: Sequence[JobStatus]) -> bool:
    return any(status.index is not None or status.pending_indices for status in statuses)


def _ask_history(cluster: Cluster, ids: Sequence[str], since: float) -> Mapping[str, list[JobStatus]]:
    query = cluster.backend.history_query(ids, since)
    output = cluster.ask(query) if query is not None else None
    return _group(cluster.backend.parse_history(output)) if output else {}


def _group(statuses: Iterable[JobStatus]) -> dict[str, list[JobStatus]]:
    groups: dict[str, list[JobStatus]] = defaultdict(list)
    for status in statuses:
        groups[status.id].append(status)
    return dict(groups)


def _read_records(cluster: Cluster, keys: Mapping[str, str]) -> list[Record]:
    records = []
    for id, key in keys.items():
        with contextlib.suppress(FileProblem):  # removed meanwhile, or damaged: 'kedge status' reports it
            records.append(cluster.records.read(key, id))
    return records


def _find_partly_listed(
    cluster: Cluster, listed: Mapping[str, list[JobStatus]], ours: Mapping[str, str]
) -> dict[str, Record]:
    """Arrays of kedge of which the scheduler lists some tasks and forgot others."""
    arrays = {id: ours[id] for id, tasks in listed.items() if id in ours and _has_tasks(tasks)}
    return {record.id: record for record in _read_records(cluster, arrays) if lacks_tasks(record, listed[record.id])}


def _close_listed(cluster: Cluster, listed: Mapping[str, list[JobStatus]], ours: Mapping[str, str]) -> None:
    """Write down final states while the scheduler still remembers them."""
    over = [id for id in ours if id in listed and all(status.state.is_final for status in listed[id])]
    for record in _read_records(cluster, {id: ours[id] for id in over[:_CLOSE_AT_ONCE]}):
        if not lacks_tasks(record, listed[record.id]):
            cluster.records.close(record, merge(record, listed[record.id]))
