# SPDX-License-Identifier: BSD-3-Clause
"""One turn of the queue: see who vanished, let begin who may, put aside what is over.

Every command of the queue takes a turn, and so does every runner at its end. While jobs wait, one more process (the
keeper) takes one now and then, for those that wait for a time or for a runner that was killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kedge.cluster.job import DependencyKind
from kedge.cluster.job_state import State
from kedge.errors import FileProblem, JobNotFound, LimitReached
from kedge.jobs.local.host_resources import LocalNode, read_machine
from kedge.jobs.local.planning import BEGIN_TIME, DEPENDENCY, NEVER, TOO_LARGE, Claim, QueuePlan, plan_turn
from kedge.jobs.local.queue_files import (
    DONE,
    FAILED,
    RUNNING,
    LocalQueue,
    LocalRequest,
    ResourceAmount,
    StoredJob,
    TaskHistory,
    append_event,
    end_task,
    name_task,
    open_task,
    read_task,
    rename_ended,
    request_cancel,
)
from kedge.system.detached_programs import start_detached
from kedge.system.file_locks import is_locked, lock_file, take_lock
from kedge.system.owned_names import is_running
from kedge.system.start_kedge import own_command

Task = tuple[int, int | None]
WAITER = "waiter"  # locked by the terminal of an interactive job
_TRIED = "tried"  # a runner of the task was lost before the task began
_PAUSE, _LONGEST_PAUSE = 2.0, 30.0  # seconds between two turns of the keeper
_SHARE = 20  # it works a twentieth of the time, however many jobs there are


@dataclass(slots=True)
class Survey:
    """The queue at one moment: its jobs, what runs of them, and what is to begin."""

    machine: LocalNode
    jobs: list[StoredJob]
    running: dict[Task, TaskHistory] = field(default_factory=dict)
    plan: QueuePlan = field(default_factory=QueuePlan)

    @property
    def has_hope(self) -> bool:
        """Whether a job waits for what can still happen."""
        waits = [reason for reason in self.plan.reasons.values() if reason.word not in (NEVER, TOO_LARGE)]
        return bool(waits) or any(task not in self.running for task in self.plan.starts)


def take_turn(queue: LocalQueue, environ: Mapping[str, str], *, when_idle: Callable[[], None] | None = None) -> Survey:
    """Take a turn under the lock; `when_idle` is called under it when no job waits."""
    with queue.locked():
        active = queue.list_active()
        has_changed = [_recover_job(queue, job, environ) for job in active]
        survey = make_survey(queue, environ, None if any(has_changed) else active)
        jobs = {job.id: job for job in survey.jobs}
        for id, index in survey.plan.starts:
            if not jobs[id].request.is_interactive:  # those begin at their own terminal
                grant_task(queue, jobs[id], index, survey, environ)
        for job in survey.jobs:
            if job.is_over:
                queue.retire(job)
        if survey.has_hope:
            _call_keeper(queue, environ)
        elif when_idle is not None:
            when_idle()
    return survey


def make_survey(queue: LocalQueue, environ: Mapping[str, str], jobs: list[StoredJob] | None = None) -> Survey:
    """Look at the queue, or at `jobs` that were just read, and plan; nothing is changed."""
    survey = Survey(read_machine(environ), queue.list_active() if jobs is None else jobs)
    size = survey.machine.size
    held: dict[str, ResourceAmount] = {}
    claims = []
    for job in survey.jobs:
        need = job.request.need(size)
        for index in sorted(job.tasks[RUNNING], key=lambda each: each or 0):
            survey.running[job.id, index] = read_task(job.path(RUNNING, index))
            held[name_of(job.id, index)] = need
        waiting = job.waiting
        if waiting:
            blocked, others = judge_dependencies(queue, job.request)
            if not blocked and (job.request.begin or 0.0) > time.time():
                blocked = BEGIN_TIME
            room = job.request.limit - len(job.tasks[RUNNING])
            claims.append(Claim(id=job.id, need=need, waiting=waiting, room=room, blocked=blocked, others=others))
    survey.plan = plan_turn(size, held, claims)
    return survey


def name_of(id: int, index: int | None) -> str:
    """`12`, `12_3`."""
    return str(id) if index is None else f"{id}_{index}"


def grant_task(
    queue: LocalQueue, job: StoredJob, index: int | None, survey: Survey, environ: Mapping[str, str]
) -> int | None:
    """Give a task its part of the machine, and start its runner; an interactive one gets the open file instead."""
    taken = {gpu for history in survey.running.values() for gpu in history.gpus}
    gpus = [gpu for gpu in survey.machine.gpus if gpu not in taken][: job.request.gpus]
    path = job.path(RUNNING, index)
    if len(gpus) < job.request.gpus:  # KEDGE_LOCAL_GPUS names others than it did; they come back one by one
        return None
    file = open_task(path, create=True)
    take_lock(file, path)
    append_event(file, granted=time.time(), gpus=gpus)
    survey.running[job.id, index] = read_task(path)
    if job.request.is_interactive:
        return file
    try:
        _start_runner(queue, job, index, file, environ)
    except (LimitReached, OSError):
        path.unlink()  # no process to be had: it waits until there is
    finally:
        os.close(file)
    return None


def keep_turning(queue: LocalQueue, environ: Mapping[str, str], file: int) -> None:
    """Be the keeper, whose lock is in the open `file`: take turns until no job waits."""
    is_needed = True

    def leave() -> None:
        nonlocal is_needed
        is_needed = False
        os.close(file)  # under the queue's lock: a job that is submitted next finds no keeper, and calls one

    while is_needed:
        began = time.process_time()  # what it waits for the lock is no work
        take_turn(queue, environ, when_idle=leave)
        if is_needed:
            time.sleep(min(_LONGEST_PAUSE, max(_PAUSE, _SHARE * (time.process_time() - began))))


def _call_keeper(queue: LocalQueue, environ: Mapping[str, str]) -> None:
    file = lock_file(queue.keeper, wait=False)
    if file is None:
        return
    try:
        words = own_command("local-queue", "serve", str(file), str(queue.root))
        with contextlib.suppress(LimitReached):  # the next command calls again
            start_detached(words, environ, log=queue.log, keep=(file,))
    finally:
        os.close(file)


def _start_runner(queue: LocalQueue, job: StoredJob, index: int | None, file: int, environ: Mapping[str, str]) -> None:
    words = own_command("local-queue", "serve", "--task", name_of(job.id, index), str(file), str(queue.root))
    start_detached(words, environ, log=queue.log, keep=(file,))


def _recover_job(queue: LocalQueue, job: StoredJob, environ: Mapping[str, str]) -> bool:
    """See to what killed processes left; whether there was anything."""
    has_changed = False
    if job.request.is_interactive and job.waiting and not is_locked(job.folder / WAITER):
        request_cancel(job, None)
        has_changed = True
    for index in job.tasks[RUNNING]:
        path = job.path(RUNNING, index)
        try:
            file = open_task(path)
        except FileNotFoundError:  # it has just ended, and its file has another name
            has_changed = True
            continue
        try:
            # a runner renames its file before it lets go: what has this name still was left by a killed one
            if take_lock(file, path, wait=False):
                has_changed = True
                if path.exists():
                    _recover_task(queue, job, index, file, environ)
        finally:
            os.close(file)
    return has_changed


def _recover_task(queue: LocalQueue, job: StoredJob, index: int | None, file: int, environ: Mapping[str, str]) -> None:
    path = job.path(RUNNING, index)
    history = read_task(path)
    if history.ended is not None:
        rename_ended(path, history.state)
    elif history.begun is None and not job.request.is_interactive:
        _try_again(queue, job, index, file)
    elif history.begun is not None and is_running(history.machine, history.pid, history.start):
        with contextlib.suppress(LimitReached):
            _start_runner(queue, job, index, file, environ)  # sees that it has begun, and watches what is left
    else:
        state = history.ending or State.LOST
        reason = "" if history.ending else "its runner was killed, or the host went down; its exit code is unknown"
        end_task(file, path, state=state, reason=reason)


def _try_again(queue: LocalQueue, job: StoredJob, index: int | None, file: int) -> None:
    """A runner was lost before the task began: it waits again. The second time something is wrong here."""
    path, tried = job.path(RUNNING, index), job.folder / name_task(_TRIED, index)
    if tried.exists():
        end_task(file, path, state=State.LOST, reason=f"its runner could not be started; {queue.log} may say why")
        return
    tried.touch()
    path.unlink()


# Whether the jobs that a job waits for have gone so far that it may begin.


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
