# SPDX-License-Identifier: BSD-3-Clause
"""Whether the jobs that a job waits for have gone so far that it may begin."""

from __future__ import annotations

import contextlib

from kedge.cluster.job import DependencyKind
from kedge.errors import FileProblem, JobNotFound
from kedge.jobs.local.planning import DEPENDENCY, NEVER
from kedge.jobs.local.queue_files import LocalQueue, StoredJob
from kedge.jobs.local.request import LocalRequest
from kedge.jobs.local.task_file import DONE, FAILED, RUNNING


def judge_dependencies(queue: LocalQueue, request: LocalRequest) -> tuple[str, tuple[str, ...]]:
    """What blocks it, empty for nothing, and the jobs that do."""
    waits, never = [], []
    for kind, id in request.after:
        found = None
        with contextlib.suppress(JobNotFound, FileProblem):
            found = queue.require_job(id)
        verdict = _judge(DependencyKind(kind), *found) if found else False
        if verdict is None:
            waits.append(id)
        elif not verdict:
            never.append(id)
    if never:
        return NEVER, tuple(never)
    return (DEPENDENCY, tuple(waits)) if waits else ("", ())


def _judge(kind: DependencyKind, job: StoredJob, index: int | None) -> bool | None:
    """True: it may begin. False: it never may. None: not yet."""
    if index is None:
        is_over, is_good, has_begun = job.is_over, job.is_done, not job.waiting
        is_bad = bool(job.tasks[FAILED] or job.unbegun)
    else:
        is_good = index in job.tasks[DONE]
        is_bad = index in job.tasks[FAILED] or index in job.unbegun
        is_over = is_good or is_bad
        has_begun = is_over or index in job.tasks[RUNNING]
    if kind is DependencyKind.AFTER:
        return has_begun or None
    if kind is DependencyKind.AFTER_ANY:
        return is_over or None
    if kind is DependencyKind.AFTER_OK:
        return True if is_good else (False if is_bad else None)
    return None if not is_over else is_bad
