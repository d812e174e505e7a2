# SPDX-License-Identifier: BSD-3-Clause
"""The process that starts one task of a job, watches it and writes down how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.cluster.host_memory import count_memory_kills
from kedge.cluster.job_state import State
from kedge.cluster.output_pattern import fill_pattern
from kedge.errors import CannotStart, KedgeError
from kedge.jobs.local.host_resources import read_machine
from kedge.jobs.local.queue_files import LocalQueue, StoredJob
from kedge.jobs.local.take_turn import name_of, take_turn
from kedge.jobs.local.task_file import CANCEL, RUNNING, append_event, end_task, read_task
from kedge.jobs.local.watch_processes import (
    GRACE,
    Child,
    EndReason,
    JobLimits,
    Orphan,
    ProgramEnd,
    Watched,
    hear_signals,
    watch_to_end,
)
from kedge.system.detached_programs import HeldProgram, Program
from kedge.system.files import explained
from kedge.system.libc import PR_SET_CHILD_SUBREAPER
from kedge.system.owned_names import machine_name
from kedge.system.private_files import open_own_file, read_own_file
from kedge.system.spawn import start_of

_OWN = (b"KEDGE_LOCAL_JOB_ID", b"KEDGE_LOCAL_ARRAY_INDEX", b"KEDGE_LOCAL_HOST")
_KILLED = 9
_ENVIRONMENT_LIMIT = 1 << 24  # bytes; the kernel takes six million


@frozen
class RunningTask:
    """One task, and the open file that its runner holds the lock of."""

    job: StoredJob
    index: int | None
    file: int

    @property
    def path(self) -> Path:
        """The file's name while it runs."""
        return self.job.path(RUNNING, self.index)

    @property
    def name(self) -> str:
        """`12_3`."""
        return name_of(self.job.id, self.index)

    def is_cancelled(self) -> bool:
        """Whether somebody asked for its end."""
        return any(os.path.exists(self.job.path(CANCEL, each)) for each in {None, self.index})  # noqa: PTH110

    def end(self, state: State, reason: str = "", ending: ProgramEnd | None = None) -> None:
        """Write down how it ended."""
        ending = ending or ProgramEnd()
        end_task(self.file, self.path, state=state, reason=reason, exit_code=ending.exit_code, signal=ending.signal)


def run_task(queue: LocalQueue, word: str, file: int, environ: Mapping[str, str]) -> None:
    """Be the runner of a task, whose lock is in the open `file`."""
    os.set_inheritable(file, False)
    hear_signals()
    _adopt_descendants()
    job, index = queue.require_job(word)
    task = RunningTask(job, index, file)
    if read_task(task.path).begun is None:
        _run_script(task, environ)
    else:
        _watch_orphan(task)
    os.close(file)
    take_turn(queue, environ)


def run_here(task: RunningTask, program: Program) -> ProgramEnd:
    """Run an interactive job's command at this terminal."""
    before = hear_signals()
    try:
        _adopt_descendants()
        return _see_to_end(task, _begin(task, program), _tell_nobody)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def make_environment(task: RunningTask, environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """What the job was submitted with, its id, and the GPUs that it holds."""
    path = task.job.folder / "environment"
    with explained(path):
        data = read_own_file(path, _ENVIRONMENT_LIMIT)
    values = dict(each.split(b"=", 1) for each in data.split(b"\0") if b"=" in each)
    for name in _OWN:
        values.pop(name, None)
    values[b"KEDGE_LOCAL_JOB_ID"] = str(task.job.id).encode()
    values[b"KEDGE_LOCAL_HOST"] = os.uname().nodename.encode()
    if task.index is not None:
        values[b"KEDGE_LOCAL_ARRAY_INDEX"] = str(task.index).encode()
    if task.job.request.gpus or read_machine(environ).gpus:  # without the second, those of other jobs would be seen
        values[b"CUDA_VISIBLE_DEVICES"] = ",".join(read_task(task.path).gpus).encode()
        values[b"CUDA_DEVICE_ORDER"] = b"PCI_BUS_ID"  # the order of /dev and of nvidia-smi
    return values


def _adopt_descendants() -> None:
    from kedge.system.libc import control_process  # late: ctypes

    control_process(PR_SET_CHILD_SUBREAPER, 1)


def _run_script(task: RunningTask, environ: Mapping[str, str]) -> None:
    request = task.job.request
    os.umask(request.umask)
    streams: tuple[int, ...] = ()

    def tell(text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(streams[2], f"kedge: job {task.name} {text}\n".encode())

    try:
        streams = _open_streams(task)
        argv = (*_find_interpreter(task.job.folder / "script"), *request.arguments)
        program = Program(argv, make_environment(task, environ), request.directory, request.umask, streams)
        child = _begin(task, program)
    except KedgeError as problem:
        if streams:
            tell(f"did not start: {problem.message}")
        task.end(State.FAILED, f"it did not start: {problem.message}")
        return
    _see_to_end(task, child, tell)


def _begin(task: RunningTask, program: Program) -> Child:
    """Start it; raises CannotStart. From the moment that it runs, its file says so."""
    held = HeldProgram(program)
    child = Child(held.pid)
    try:
        append_event(task.file, begun=time.time(), pid=held.pid, start=start_of(held.pid), machine=machine_name())
        held.go()
    except OSError as problem:
        held.drop()
        child.wait(GRACE)
        names = (program.directory, program.argv[0], task.path)
        where = next((name for name in names[:2] if not os.access(name, os.X_OK)), names[2])
        raise CannotStart(f"{where}: {problem.strerror}") from problem
    return child


def _see_to_end(task: RunningTask, child: Child, tell: Callable[[str], None]) -> ProgramEnd:
    request = task.job.request
    kills, _ = count_memory_kills()
    limits = JobLimits(read_task(task.path).begun or time.time(), request.time, request.memory)
    ending = _watch(task, child, limits, tell)
    task.end(*_judge(ending, kills), ending)
    return ending


def _watch_orphan(task: RunningTask) -> None:
    """See to the limits of a task whose runner was killed; how it ends nobody will know but its script."""
    history, request = read_task(task.path), task.job.request
    orphan = Orphan(history.machine, history.pid, history.start)
    limits = JobLimits(history.begun or time.time(), request.time, request.memory)
    ending = _watch(task, orphan, limits, _tell_nobody)
    verdict = ending.verdict or EndReason(State.LOST, "its runner was killed while it ran; its exit code is unknown")
    task.end(verdict.state, verdict.reason)


def _watch(task: RunningTask, watched: Watched, limits: JobLimits, tell: Callable[[str], None]) -> ProgramEnd:
    def note(verdict: EndReason) -> None:
        with contextlib.suppress(OSError):  # a full disk must not keep it from being ended
            append_event(task.file, ending=verdict.state, reason=verdict.reason)
        tell(f"is being stopped: {verdict.reason or 'it was cancelled'}")

    return watch_to_end(watched, limits, task.is_cancelled, note)


def _tell_nobody(text: str) -> None:
    """Show nothing: for programs that have a terminal, or whose files are unknown."""
    del text


def _judge(ending: ProgramEnd, kills_before: int | None) -> tuple[State, str]:
    if ending.verdict is not None:
        return ending.verdict.state, ending.verdict.reason
    if ending.exit_code == 0:
        return State.DONE, ""
    if _KILLED in (ending.signal, (ending.exit_code or 0) - 128):
        kills, _ = count_memory_kills()
        if kills is not None and kills_before is not None and kills > kills_before:
            return State.OUT_OF_MEMORY, "the kernel killed it: this host ran out of memory"
    return State.FAILED, ""


def _open_streams(task: RunningTask) -> tuple[int, int, int]:
    """Standard input, output and error of a script."""
    request = task.job.request
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    output = _open_output(task, request.output)
    return null, output, _open_output(task, request.error) if request.error else output


def _open_output(task: RunningTask, pattern: str) -> int:
    path = fill_pattern(pattern, name=task.job.request.name, id=str(task.job.id), index=task.index)
    is_shared = task.index is not None and "{index}" not in pattern  # by the tasks of an array, which add to it
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if is_shared else os.O_TRUNC)
    flags |= os.O_NOFOLLOW  # the name can be guessed: a container that has this directory could leave a link there
    with explained(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def _find_interpreter(script: Path) -> list[str]:
    """The words that run a script, from its first line: its own directory may be one where nothing can be executed."""
    with explained(script), os.fdopen(open_own_file(script), "rb") as file:
        first = file.readline(4096)
    words = os.fsdecode(first.removeprefix(b"#!").strip()).split(None, 1)
    return [*words, str(script)]
