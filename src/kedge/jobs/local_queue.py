# SPDX-License-Identifier: BSD-3-Clause
"""The local queue of this host: submits scripts, runs commands in turn, lists and cancels jobs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import replace
from kedge.cluster.job import IndexRange
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.memory import shorten_memory
from kedge.cluster.output_pattern import fill_pattern
from kedge.errors import FileProblem, InvalidJob, JobFailed, JobNotFound, KedgeError
from kedge.jobs.local.directives import apply_options, read_directives
from kedge.jobs.local.host_resources import read_machine, refuse_too_much
from kedge.jobs.local.planning import NEVER, TOO_LARGE, Reason
from kedge.jobs.local.queue_files import (
    DONE,
    FAILED,
    RUNNING,
    LocalQueue,
    LocalRequest,
    StoredJob,
    TaskHistory,
    read_cancel_time,
    read_task,
    request_cancel,
)
from kedge.jobs.local.runner import RunningTask, make_environment, run_here, run_task
from kedge.jobs.local.take_turn import WAITER, Survey, grant_task, keep_turning, make_survey, take_turn
from kedge.system.detached_programs import Program
from kedge.system.file_locks import lock_file
from kedge.system.files import explained, write_atomically
from kedge.system.owned_names import find_user_name, is_running
from kedge.system.process_tree import find_family, parse_signal, signal_all
from kedge.system.programs import find_program

_SCRIPT_LIMIT = 64 << 20
_RECENT = 3600.0  # seconds for which the list shows what has ended
_PAUSE = 0.4  # seconds between two looks whether it is our turn
_OUTPUT = "{name}-{id}.out"
_ARRAY_OUTPUT = "{name}-{id}_{index}.out"


def submit_script(
    script: Path, options: Mapping[str, str], arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[LocalQueue, int]:
    """Submit a script; options override its #KEDGE lines. The caller then calls start_pending."""
    text = _read_script(script)
    given = {**read_directives(text.decode(errors="surrogateescape")), **options}
    request = _complete(apply_options(_make_request(arguments, name=script.name), given))
    queue = LocalQueue.find(environ)
    _check_request(queue, request, environ)
    with queue.draft(request) as folder:
        write_atomically(folder / "script", text, mode=0o700)
        _write_environment(folder)
        with queue.locked():
            return queue, queue.submit(folder)


def run_command(command: Sequence[str], options: Mapping[str, str], environ: Mapping[str, str]) -> int:
    """Wait for room and run a command at this terminal; returns its exit code as a shell does."""
    path = find_program(command[0])
    if path is None:
        raise FileProblem(f"program '{command[0]}' not found", hint="check the spelling, or give its path")
    request = apply_options(_make_request((path, *command[1:]), name=Path(command[0]).name), options)
    request = replace(request, is_interactive=True, arguments=(str(Path(path).absolute()), *command[1:]))
    if request.array:
        raise InvalidJob(
            "an interactive command cannot be an array", context={"key": "array"}, hint="leave out --array"
        )
    queue = LocalQueue.find(environ)
    _check_request(queue, request, environ)
    with _wait_for_turn(queue, request, environ) as task:
        try:
            program = Program(request.arguments, make_environment(task, environ), request.directory, request.umask)
            ending = run_here(task, program)
        except KedgeError as problem:
            task.end(State.FAILED, problem.message)
            raise
    take_turn(queue, environ)
    if ending.verdict is not None:
        raise JobFailed(f"'{command[0]}' was ended: {ending.verdict.reason or 'the job was cancelled'}")
    return ending.exit_code if ending.exit_code is not None else 128 + (ending.signal or 0)


@contextlib.contextmanager
def _wait_for_turn(queue: LocalQueue, request: LocalRequest, environ: Mapping[str, str]) -> Iterator[RunningTask]:
    """The task, once its resources are free; if this process is killed, the job leaves the queue."""
    with queue.draft(request) as folder:
        _write_environment(folder)
        waiter = lock_file(folder / WAITER)
        with queue.locked():
            id = queue.submit(folder)
    assert waiter is not None  # nobody else knew of it
    try:
        while (task := _try_turn(queue, id, environ)) is None:
            time.sleep(_PAUSE)
        try:
            yield task
        finally:
            os.close(task.file)
    except BaseException:
        job = queue.find_job(id)
        if job is not None and not job.is_over:
            request_cancel(job, None)
        raise
    finally:
        os.close(waiter)


def _try_turn(queue: LocalQueue, id: int, environ: Mapping[str, str]) -> RunningTask | None:
    if (id, None) not in take_turn(queue, environ).plan.starts:
        found = queue.find_job(id)
        if found is None or found.is_cancelled:
            raise JobFailed(f"job {id} was cancelled while it was pending")
        return None
    with queue.locked():
        survey = make_survey(queue, environ)
        job = next((each for each in survey.jobs if each.id == id), None)
        if job is None or (id, None) not in survey.plan.starts:
            return None
        file = grant_task(queue, job, None, survey, environ)
    return RunningTask(job, None, file) if file is not None else None


def list_jobs(environ: Mapping[str, str], *, everything: bool = False) -> list[JobStatus]:
    """Pending and running jobs, and those that ended in the last hour or, with `everything`, at any time."""
    queue = LocalQueue.find(environ)
    if not queue.exists:
        return []
    take_turn(queue, environ)
    with queue.locked():  # nothing moves meanwhile
        ended = queue.list_ended(0.0 if everything else time.time() - _RECENT)
        survey = make_survey(queue, environ)
        jobs = sorted((*ended, *survey.jobs), key=lambda job: job.id)
        return [status for job in jobs for status in describe_job(job, survey)]


def show_jobs(words: Sequence[str], environ: Mapping[str, str]) -> list[JobStatus]:
    """The status of these jobs, without those that do not exist."""
    queue = LocalQueue.find(environ)
    if not queue.exists:
        return []
    take_turn(queue, environ)
    found = []
    with queue.locked():
        survey = make_survey(queue, environ)
        for word in words:
            with contextlib.suppress(JobNotFound):
                job, index = queue.require_job(word)
                statuses = describe_job(job, survey)
                found += [each for each in statuses if index is None or each.index == index or each.pending_indices]
    return found


def cancel_jobs(words: Sequence[str], signal: str, environ: Mapping[str, str]) -> None:
    """Cancel jobs, or send their running tasks a signal; an ended job is no error, an unknown one is."""
    queue = LocalQueue.find(environ)
    number = parse_signal(signal) if signal else None
    unknown = []
    for word in words:
        try:
            job, index = queue.require_job(word)
        except JobNotFound as problem:
            unknown.append(problem)
            continue
        if number is None and not job.is_over:
            request_cancel(job, index)
        elif number is not None:
            _send_signal(job, index, number)
    if queue.exists:
        take_turn(queue, environ)
    if unknown:
        raise unknown[0]


def serve_task(root: Path, word: str, file: int, environ: Mapping[str, str]) -> None:
    """Run one task; the queue starts this process."""
    run_task(_reopen(root), word, file, environ)


def serve_keeper(root: Path, file: int, environ: Mapping[str, str]) -> None:
    """Start pending jobs in turn; the queue starts this process."""
    keep_turning(_reopen(root), environ, file)


def _reopen(root: Path) -> LocalQueue:
    """The queue that started this process."""
    queue = LocalQueue(root)
    queue.refuse_intruders()
    return queue


def start_pending(queue: LocalQueue, environ: Mapping[str, str]) -> None:
    """Start the pending jobs that have room."""
    take_turn(queue, environ)


def _read_script(path: Path) -> bytes:
    with explained(path), path.open("rb") as file:
        data = file.read(_SCRIPT_LIMIT + 1)
    if not data.startswith(b"#!/") or len(data) > _SCRIPT_LIMIT or b"\0" in data[:1024]:
        raise InvalidJob(
            f"{path} is not a script", context={"path": str(path)}, hint="begin it with a line such as #!/bin/bash"
        )
    return data


def _make_request(arguments: Sequence[str], name: str) -> LocalRequest:
    umask = os.umask(0o077)  # the only way to read it
    os.umask(umask)
    return LocalRequest(
        name=name,
        arguments=tuple(arguments),
        directory=str(Path.cwd()),
        umask=umask,
        user=find_user_name(),
        submitted=time.time(),
    )


def _complete(request: LocalRequest) -> LocalRequest:
    """The request with absolute paths."""
    directory = Path(request.directory).absolute()
    output = request.output or (_ARRAY_OUTPUT if request.array else _OUTPUT)
    error = str(directory / request.error) if request.error else ""
    return replace(request, directory=str(directory), output=str(directory / output), error=error)


def _check_request(queue: LocalQueue, request: LocalRequest, environ: Mapping[str, str]) -> None:
    """Refuse what could never start."""
    refuse_too_much(request, read_machine(environ))
    if not Path(request.directory).is_dir():
        raise FileProblem(f"the working directory {request.directory} does not exist", context={"key": "directory"})
    for _, id in request.after:
        queue.require_job(id)


def _write_environment(folder: Path) -> None:
    """Write the environment as /proc shows it; passwords may be in it."""
    data = b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items())
    write_atomically(folder / "environment", data, mode=0o600)


def _send_signal(job: StoredJob, index: int | None, number: int) -> None:
    for each in job.tasks[RUNNING] if index is None else job.tasks[RUNNING] & {index}:
        history = read_task(job.path(RUNNING, each))
        if history.pid and is_running(history.machine, history.pid, history.start):
            signal_all(find_family(-1, history.pid), number)


# What the queue tells of its jobs: one entry per task that began, and one for all tasks of a job that wait.


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
