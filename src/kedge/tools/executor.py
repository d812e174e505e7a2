# SPDX-License-Identifier: BSD-3-Clause
"""Runs Python functions as jobs: a concurrent.futures executor whose workers are containers on a cluster.

with kedge.Executor("docker://python:3.12", queue="gpu", gpus=1, time="1h") as executor:
    futures = [executor.submit(train, rate) for rate in (0.1, 0.01)]
    sums = list(executor.map(add, range(100), range(100)))   # one array of jobs
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedge.api import open_jobs
from kedge.base.frozen import replace
from kedge.cluster.job import IndexRange, Job, JobArray
from kedge.errors import JobFailed, KedgeError, UsageError
from kedge.jobs.cluster import Cluster
from kedge.jobs.job_handle import JobHandle
from kedge.jobs.keywords import make_job
from kedge.jobs.merge_status import find_ended
from kedge.jobs.status import survey
from kedge.jobs.submit import plan_submit, submit
from kedge.system.start_kedge import find_bundle, own_python
from kedge.tools.functions.pack import Answer, Arguments, PackedCall, name_file, read_answer, write_call

_GLANCE = 0.25  # seconds between two looks for results, which are files
_ASK = 10.0  # seconds between two questions to the scheduler, for jobs that ended without a result
_SOON = 1.0  # seconds until it is asked because a script has ended without one
_GRACE = 5.0  # seconds in which a result may still come into sight after its job is over


class JobFuture(futures.Future[Any]):
    """A future whose `job` is the job that computes it; `index` is that of its task where the job is an array."""

    def __init__(self, job: JobHandle, index: int | None) -> None:
        super().__init__()
        self.job = job
        self.index = index

    def cancel(self) -> bool:
        """Cancel the task that computes it, unless the result has arrived."""
        was_waiting = not self.done()
        is_cancelled = super().cancel()
        if is_cancelled and was_waiting:
            self.job.cancel(self.index)
        return is_cancelled


@dataclass(slots=True)
class _Pending:
    """One task that was submitted: the file its result will be, and the futures that wait for it."""

    result: Path
    key: bytes  # of its call's seals
    futures: list[JobFuture]
    job: JobHandle
    index: int | None
    over_since: float = 0.0
    was_ended: bool = False  # its script has ended once, which is no last word: it may be put back into the queue


class Executor(futures.Executor):
    """Runs functions in containers on the cluster. Takes the keys of kedge.toml as keywords: `gpus=1`, `time="1h"`."""

    def __init__(
        self, image: str = "", *, python: str = "python3", site: str | None = None, **description: Any
    ) -> None:
        self._job: Job = make_job({**description, "image": image or None}, needs_command=False)
        self._cluster: Cluster
        self._cluster, self._settings = open_jobs(site)
        is_own = python == "python3" and not image and bool(find_bundle())  # nodes may have no other Python
        self._python = tuple(own_python()) if is_own else (python,)
        self._pending: list[_Pending] = []
        self._folders: list[Path] = []
        self._lock = threading.Lock()
        self._is_shut = False
        self._has_failed = False
        self._watcher: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> JobFuture:
        """Run one call as one job."""
        return self._start(function, [[(arguments, named)]], getattr(function, "__name__", "call"))[0]

    def map(
        self, function: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Run one array job with a task for every `chunksize` items; results come in order."""
        if chunksize < 1:
            raise UsageError(f"chunksize={chunksize} is not valid: it must be at least 1")
        calls: list[Arguments] = [(each, {}) for each in zip(*iterables, strict=False)]
        tasks = [calls[begin : begin + chunksize] for begin in range(0, len(calls), chunksize)]
        waiting = self._start(function, tasks, getattr(function, "__name__", "map")) if tasks else []
        end = None if timeout is None else time.monotonic() + timeout
        return _take_results(waiting, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that were submitted, or cancel them."""
        with self._lock:
            self._is_shut = True
            pending = list(self._pending)
        if cancel_futures:
            _cancel_all(future for call in pending for future in call.futures)
        watcher = self._watcher
        if wait and watcher is not None:
            watcher.join()
        if wait:
            for folder in self._folders:  # what went wrong stays to be looked at
                if not self._has_failed:
                    shutil.rmtree(folder, ignore_errors=True)

    def _start(self, function: Callable[..., Any], tasks: Sequence[Sequence[Arguments]], name: str) -> list[JobFuture]:
        with self._lock:
            if self._is_shut:
                raise RuntimeError("the executor was shut down and accepts no more calls")
        folder = self._cluster.records.calls / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self._cluster.records.prepare()
        call = write_call(folder, function, tasks)
        job = self._make_job(folder, call, len(tasks), name)
        try:
            plan = plan_submit(job, self._cluster, self._settings, os.environ, str(Path.cwd()))
            handle = JobHandle(self._cluster, submit(plan).record)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        pending = []
        for index, calls in enumerate(tasks):
            place = index if len(tasks) > 1 else None
            waiting = [JobFuture(handle, place) for _ in calls]
            pending.append(_Pending(folder / name_file("result", place), call.key, waiting, handle, place))
        with self._lock:
            self._folders.append(folder)
            self._pending += pending
            if self._watcher is None or not self._watcher.is_alive():
                self._watcher = threading.Thread(target=self._watch, name="kedge-executor", daemon=True)
                self._watcher.start()
        return list(itertools.chain.from_iterable(each.futures for each in pending))

    def _make_job(self, folder: Path, call: PackedCall, count: int, name: str) -> Job:
        base = self._job
        command = (*self._python, *call.words)
        binds = (*base.binds, str(folder), *call.folders) if base.image else base.binds
        return replace(
            base,
            name=base.name if base.name != Job().name else name,
            command=command,
            binds=binds,
            array=JobArray((IndexRange(0, count - 1),)) if count > 1 else None,
            output=base.output or str(folder / ("output.{index}" if count > 1 else "output")),
        )

    def _watch(self) -> None:
        """Bring results to their futures until there is nothing to wait for."""
        due = time.monotonic() + _ASK
        over: set[tuple[str, int | None]] = set()
        while True:
            with self._lock:
                pending = list(self._pending)
                if not pending:
                    self._watcher = None
                    return
            files = _list_files(pending)
            if _note_ended(pending, files):
                due = min(due, time.monotonic() + _SOON)
            if time.monotonic() >= due:
                over = self._find_over(pending)
                due = time.monotonic() + _ASK
            for call in pending:
                if _settle(call, files, is_over=(call.job.id, call.index) in over):
                    self._has_failed |= any(not one.cancelled() and one.exception() is not None for one in call.futures)
                    with self._lock:
                        self._pending.remove(call)
            time.sleep(_GLANCE)

    def _find_over(self, pending: Sequence[_Pending]) -> set[tuple[str, int | None]]:
        """Which tasks are over or never begin: the scheduler says it of all by one question.

        While it does not answer, scripts that ended by themselves say it.
        """
        try:
            statuses = [view.status for view in survey(self._cluster)]
        except KedgeError:
            records = {call.job.id: call.job.record for call in pending if call.was_ended}
            return {(each.id, each.index) for record in records.values() for each in find_ended(record)}
        known = {(each.id, each.index) for each in statuses if each.state.is_over}
        is_stuck = self._cluster.backend.is_stuck
        going_on = {each.id for each in statuses if not each.state.is_over and not is_stuck(each)}
        whole = {each.id for each in statuses} - going_on
        return {(call.job.id, call.index) for call in pending if call.job.id in whole} | known


def _list_files(pending: Sequence[_Pending]) -> set[Path]:
    """Return all files that results and ends of tasks may be: one look at each directory, however many tasks."""
    folders = {folder for call in pending for folder in (call.result.parent, call.job.record.folder)}
    found: set[Path] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(folder.iterdir())
    return found


def _note_ended(pending: Sequence[_Pending], files: set[Path]) -> bool:
    """Whether a script has ended that had not before: then the scheduler knows whether that was all."""
    new = [call for call in pending if not call.was_ended and _name_ended(call) in files]
    for call in new:
        call.was_ended = True
    return bool(new)


def _name_ended(pending: _Pending) -> Path:
    return pending.job.record.folder / name_file("ended", pending.index)


def _settle(pending: _Pending, files: set[Path], *, is_over: bool) -> bool:
    """Give a task's futures their results, or the reason why there will be none; whether that is done."""
    if all(future.cancelled() for future in pending.futures):
        return True
    try:
        answer = _find_answer(pending, files, is_over=is_over)
    except BaseException as problem:  # whatever it is, SystemExit of a pickle too: who waits for the future must hear
        answer = Answer(problem=problem)
    if answer is None:
        return False
    if answer.problem is None and len(answer.values) != len(pending.futures):
        answer = Answer(problem=_explain_count(pending, len(answer.values)))
    for position, future in enumerate(pending.futures):
        if not future.set_running_or_notify_cancel():
            continue
        if answer.problem is not None:
            future.set_exception(answer.problem)
        else:
            future.set_result(answer.values[position])
    return True


def _find_answer(pending: _Pending, files: set[Path], *, is_over: bool) -> Answer | None:
    """What the task brought back, or that it ended without; None while it may still come."""
    answer = read_answer(pending.result, pending.key) if pending.result in files else None
    if answer is not None:
        return answer
    if not is_over:
        pending.over_since = 0.0
        return None
    pending.over_since = pending.over_since or time.monotonic()
    if time.monotonic() - pending.over_since < _GRACE:
        return None
    return Answer(problem=_explain_missing(pending))


def _explain_count(pending: _Pending, count: int) -> KedgeError:
    return JobFailed(
        f"job {pending.job.id} brought back {count} results for {len(pending.futures)} calls",
        context={"file": str(pending.result)},
        hint="the image's Python, or the function itself, changed the result; use an image that you trust",
    )


def _explain_missing(pending: _Pending) -> KedgeError:
    job = pending.job
    stuck = job.explain_stuck()
    if stuck is not None:
        return stuck
    said = job.logs(pending.index)[-2000:].strip()
    return JobFailed(
        f"job {job.id} ended without a result: {job.state.word}",
        context={"why": job.reason, "output": said},
        hint=f"see kedge status {job.record.typed_id} and kedge logs {job.record.typed_id}",
    )


def _take_results(waiting: Sequence[JobFuture], end: float | None) -> Iterator[Any]:
    """Results in order; who stops early, or meets an exception, needs no more of them, as in the standard library."""
    try:
        for future in waiting:
            yield future.result(None if end is None else max(end - time.monotonic(), 0.0))
    finally:
        _cancel_all(waiting)


def _cancel_all(waiting: Iterable[JobFuture]) -> None:
    """Cancel futures that are not done, and their jobs with one call each."""
    jobs = {future.job.id: future.job for future in waiting if not future.done() and futures.Future.cancel(future)}
    for job in jobs.values():
        job.cancel()
