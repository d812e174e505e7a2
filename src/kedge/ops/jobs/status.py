# SPDX-License-Identifier: BSD-3-Clause
"""What became of jobs: one question to the scheduler, and one to its accounts for those it forgot."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kedge.errors import FileProblem, JobNotFound, SchedulerFailed
from kedge.frozen import frozen, replace
from kedge.jobs.records import Record
from kedge.model.job import JobArray
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.cluster import Cluster
from kedge.ops.jobs.find_job import FoundJob, recover_ids
from kedge.ops.jobs.merge_status import (
    count_tasks,
    find_told_alone,
    indices_of,
    is_settled,
    lacks_tasks,
    make_status,
    merge,
)
from kedge.ops.jobs.submit import recover_id
from kedge.schedulers.array_numbers import can_renumber, restore_indices

BEING_CANCELLED = "you cancelled it, and the scheduler is ending it"
_RECENT = 86400.0  # seconds; what ended before is shown with --all only
_CLOSE_AT_ONCE = 200  # records whose last word is written down in one survey: the rest can wait


@frozen
class JobView:
    """One line of `kedge jobs`: a job, or a task of an array."""

    status: JobStatus
    key: str = ""  # of its record; empty: it was not submitted with kedge


def survey(cluster: Cluster, *, everything: bool = False) -> list[JobView]:
    """All jobs of the user: those the scheduler knows, and ours that it forgot; newest first."""
    listed = _group(_list_jobs(cluster))
    recover_ids(cluster)
    ours = cluster.records.list_ids(cluster.site.name)
    ended = cluster.records.list_ended(cluster.site.name, 0.0 if everything else time.time() - _RECENT)
    listed = _restore_listed(cluster, listed, {**ended, **ours})
    views = [JobView(each, ours.get(id, ended.get(id, ""))) for id, each_of in listed.items() for each in each_of]
    partly = _find_partly_listed(cluster, listed, ours)
    views = [_view_cancelling(cluster, view) for view in views if view.status.id not in partly]
    forgotten = _read_records(cluster, {id: key for id, key in ours.items() if id not in listed})
    over = _read_records(cluster, {id: key for id, key in ended.items() if id not in listed})
    finals = [(record, record.read_final()) for record in over]
    forgotten += [record for record, final in finals if not final]  # they began once more
    for record, statuses in _resolve_forgotten(cluster, [*forgotten, *partly.values()], listed):
        views += [JobView(each, record.key) for each in statuses]
    views += [JobView(each, record.key) for record, final in finals for each in final]
    _close_listed(cluster, listed, ours)
    views.sort(key=lambda view: view.status.index or 0)
    return sorted(views, key=lambda view: (view.status.submitted or 0.0, view.status.id), reverse=True)


def _view_cancelling(cluster: Cluster, view: JobView) -> JobView:
    if not view.key or view.status.state.is_over or not cluster.records.has_cancelled(view.key):
        return view
    found = _read_records(cluster, {view.status.id: view.key})
    return replace(view, status=_note_cancelling(found[0], view.status)) if found else view


def read_status(cluster: Cluster, job: FoundJob) -> list[JobStatus]:
    """The status of every task of a job, or of the one task that the user named."""
    return choose_tasks(job, look_up(cluster, job.record) if job.record else look_up_foreign(cluster, job.id))


def choose_tasks(job: FoundJob, statuses: list[JobStatus]) -> list[JobStatus]:
    """Of all tasks those that the user named."""
    if job.index is None:
        return statuses
    chosen = [status for status in statuses if status.index == job.index]
    pending = [status for status in statuses if status.pending_indices]
    if not chosen and not pending:
        raise JobNotFound(f"job {job.id} has no task {job.index}", hint=f"list its tasks: kedge status {job.typed_id}")
    return chosen or pending


def look_up(cluster: Cluster, record: Record) -> list[JobStatus]:
    """What is known about one job of ours."""
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
        told = find_told_alone(record)
        if len(told) < count_tasks(record):
            raise
        return told
    if not listed or lacks_tasks(record, listed):
        return _resolve_forgotten(cluster, [record], {record.id: listed})[0][1]
    found = merge(record, listed)
    if is_settled(record, found):
        cluster.records.close(record, found)
    return [_note_cancelling(record, each) for each in found]


def _note_cancelling(record: Record, status: JobStatus) -> JobStatus:
    """A job that its user cancelled is on its way out, though the scheduler still lists it for some seconds."""
    if status.state.is_over or not record.was_cancelled(status.index):
        return status
    return replace(status, state=State.COMPLETING, reason=BEING_CANCELLED)


def look_up_many(cluster: Cluster, records: Sequence[Record]) -> dict[str, list[JobStatus]]:
    """What is known about several jobs of ours, by the keys of their records: one question for all that go on.

    Those that are over are looked at more closely, and those that the scheduler forgot in its accounts, all at once.
    """
    try:
        listed = _group(_list_jobs(cluster))
    except SchedulerFailed:  # scripts may tell it all the same
        return {record.key: look_up(cluster, record) for record in records}
    found, forgotten = {}, []
    for record in records:
        told = _restore(record, listed.get(record.id, []))
        if told and not lacks_tasks(record, told) and not all(each.state.is_over for each in told):
            found[record.key] = merge(record, told)
        elif record.id and not told and not record.read_final():
            forgotten.append(record)
        else:
            found[record.key] = look_up(cluster, record)
    return found | {record.key: statuses for record, statuses in _resolve_forgotten(cluster, forgotten)}


def look_up_foreign(cluster: Cluster, id: str) -> list[JobStatus]:
    """What is known about a job that was not submitted with kedge."""
    found = _look_closely(cluster, id)
    if not found:
        found = _ask_history(cluster, [id], time.time() - 30 * _RECENT).get(id, [])
    if not found:
        raise JobNotFound(
            f"neither kedge's records nor {cluster.backend.name} know a job '{id}'",
            hint="'kedge jobs --all' lists what there is; another cluster is chosen with --site",
        )
    return found


def _resolve_forgotten(
    cluster: Cluster, records: Sequence[Record], listed: Mapping[str, list[JobStatus]] | None = None
) -> list[tuple[Record, list[JobStatus]]]:
    """What became of jobs that the scheduler no longer lists: from its accounts, else from what their scripts wrote.

    `listed` are the tasks it still lists of arrays of which it forgot others.
    """
    if not records:
        return []
    since = min(record.submitted for record in records) - 3600  # clocks of two machines differ
    told = _ask_history(cluster, [record.id for record in records], since)
    resolved = []
    for record in records:
        known = {each.shown_id: each for each in _restore(record, told.get(record.id, []))}
        if listed and record.id in listed:  # the queue knows better than accounts which tasks wait, or wait again
            there = {index for each in listed[record.id] for index in indices_of(each)}
            known = {
                shown: each for shown, each in known.items() if not each.pending_indices and each.index not in there
            }
            known |= {each.shown_id: each for each in listed[record.id]}
        statuses = merge(record, list(known.values()))
        if is_settled(record, statuses):
            cluster.records.close(record, statuses)
        resolved.append((record, statuses))
    return resolved


def forget_old(cluster: Cluster, days: float) -> int:
    """Remove the records of jobs that ended more than so many days ago; returns how many."""
    recent = cluster.records.list_ended(cluster.site.name, time.time() - days * 86400)
    old = {id: key for id, key in cluster.records.list_ended(cluster.site.name).items() if id not in recent}
    gone = _read_records(cluster, old)
    for key in cluster.records.list_new():  # never submitted, as nobody found an id
        with contextlib.suppress(FileProblem):
            record = cluster.records.read(key, "")
            gone += (
                [record] if record.site == cluster.site.name and record.submitted < time.time() - days * 86400 else []
            )
    for record in gone:
        cluster.records.forget(record)
    return len(gone)


def _list_jobs(cluster: Cluster) -> list[JobStatus]:
    return cluster.backend.parse_list(cluster.ask(cluster.backend.list_query(cluster.user)) or "")


def _ask_detail(cluster: Cluster, id: str) -> list[JobStatus]:
    query = cluster.backend.detail_query(id)
    output = cluster.ask(query) if query is not None else None
    return cluster.backend.parse_detail(output) if output else []


def _look_closely(cluster: Cluster, id: str) -> list[JobStatus]:
    """What the scheduler says of one job; where its closer look shows no state, that is in the list."""
    detail = _ask_detail(cluster, id)
    if detail and all(each.raw for each in detail):
        return detail
    listed = _group(_list_jobs(cluster)).get(id, [])
    if not detail:
        return listed
    more = detail[0]
    return [
        replace(
            each,
            reason=each.reason or more.reason,
            submitted=each.submitted or more.submitted,
            time_limit=each.time_limit or more.time_limit,
            details=(*each.details, *more.details),
        )
        for each in listed
    ]


def _restore(record: Record, statuses: Sequence[JobStatus]) -> list[JobStatus]:
    """With the indices of the user's, where the scheduler has to count in its own way."""
    if not record.is_array or not can_renumber(record.scheduler):
        return list(statuses)
    return restore_indices(record.scheduler, JobArray.parse(str(record.job["array"])), statuses)


def _restore_listed(
    cluster: Cluster, listed: Mapping[str, list[JobStatus]], keys: Mapping[str, str]
) -> dict[str, list[JobStatus]]:
    if not can_renumber(cluster.backend.name):
        return dict(listed)
    records = _read_records(cluster, {id: keys[id] for id in listed if id in keys and _has_tasks(listed[id])})
    return {**listed, **{record.id: _restore(record, listed[record.id]) for record in records}}


def _has_tasks(statuses: Sequence[JobStatus]) -> bool:
    return any(each.index is not None or each.pending_indices for each in statuses)


def _ask_history(cluster: Cluster, ids: Sequence[str], since: float) -> Mapping[str, list[JobStatus]]:
    query = cluster.backend.history_query(ids, since)
    output = cluster.ask(query) if query is not None else None
    return _group(cluster.backend.parse_history(output)) if output else {}


def _group(statuses: Iterable[JobStatus]) -> dict[str, list[JobStatus]]:
    groups: dict[str, list[JobStatus]] = defaultdict(list)
    for each in statuses:
        groups[each.id].append(each)
    return dict(groups)


def _read_records(cluster: Cluster, keys: Mapping[str, str]) -> list[Record]:
    found = []
    for id, key in keys.items():
        with contextlib.suppress(FileProblem):  # removed meanwhile, or damaged: 'kedge status' says it
            found.append(cluster.records.read(key, id))
    return found


def _find_partly_listed(
    cluster: Cluster, listed: Mapping[str, list[JobStatus]], ours: Mapping[str, str]
) -> dict[str, Record]:
    """Arrays of ours of which the scheduler forgot some tasks while others are there."""
    arrays = {id: ours[id] for id, tasks in listed.items() if id in ours and _has_tasks(tasks)}
    return {each.id: each for each in _read_records(cluster, arrays) if lacks_tasks(each, listed[each.id])}


def _close_listed(cluster: Cluster, listed: Mapping[str, list[JobStatus]], ours: Mapping[str, str]) -> None:
    """Write down last words while the scheduler still remembers them."""
    over = [id for id in ours if id in listed and all(each.state.is_final for each in listed[id])]
    for record in _read_records(cluster, {id: ours[id] for id in over[:_CLOSE_AT_ONCE]}):
        if not lacks_tasks(record, listed[record.id]):
            cluster.records.close(record, merge(record, listed[record.id]))
