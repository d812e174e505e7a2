# SPDX-License-Identifier: BSD-3-Clause
"""The process that starts one task of a job, watches it and writes down how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen
from kedge.cluster.host_memory import count_memory_kills
from kedge.cluster.job_state import State
from kedge.cluster.memory import shorten_memory
from kedge.cluster.output_pattern import fill_pattern
from kedge.errors import CannotStart, KedgeError
from kedge.jobs.local.host_resources import read_machine
from kedge.jobs.local.queue_files import CANCEL, RUNNING, LocalQueue, StoredJob, append_event, end_task, read_task
from kedge.jobs.local.take_turn import name_of, take_turn
from kedge.system.detached_programs import HeldProgram, Program
from kedge.system.files import explained
from kedge.system.libc import PR_SET_CHILD_SUBREAPER
from kedge.system.owned_names import is_running, machine_name
from kedge.system.private_files import open_own_file, read_own_file
from kedge.system.process_tree import Process, count_memory, find_family, signal_all
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


# Watching a job's processes until they are gone: time, memory, and whether somebody cancelled it.

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_GLANCE = 0.5  # seconds between two looks
_PATIENCE = 15.0  # seconds after which a process that even SIGKILL does not end is left to itself
_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@frozen
class EndReason:
    """Why a job has to end."""

    state: State
    reason: str = ""


@frozen
class ProgramEnd:
    """How its program ended; both None when nobody could see it."""

    exit_code: int | None = None
    signal: int | None = None
    verdict: EndReason | None = None  # what ended it, if it did not end by itself


class Watched(Protocol):
    """A program that runs."""

    def wait(self, seconds: float) -> ProgramEnd | None:
        """Return how the program ended, as soon as it did; None when it has not within that time."""
        ...

    def find_processes(self) -> list[Process]:
        """Return all living processes that belong to the program."""
        ...

    @property
    def is_told_to_end(self) -> bool:
        """Whether this process was asked to end, and the program with it."""
        ...


def hear_signals() -> set[int]:
    """Keep the signals that `Child` asks for from now on; returns what was blocked before."""
    return {int(signal_number) for signal_number in signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)}


class Child:
    """A child of this process, to which the kernel gives whatever its descendants leave behind."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_told_to_end = False
        self._ending: ProgramEnd | None = None

    def wait(self, seconds: float) -> ProgramEnd | None:
        """See Watched."""
        self._reap()
        if self._ending is None:
            heard = signal.sigtimedwait(_HEARD, seconds)
            self.is_told_to_end |= heard is not None and heard.si_signo == signal.SIGTERM
            self._reap()
        return self._ending

    def find_processes(self) -> list[Process]:
        """See Watched."""
        self._reap()
        return find_family(os.getpid())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self._ending = ProgramEnd(exit_code=code) if code >= 0 else ProgramEnd(signal=-code)


class Orphan:
    """A program whose runner was killed: nobody will hear its status."""

    is_told_to_end = False

    def __init__(self, machine: str, pid: int, start: int) -> None:
        self._process = (machine, pid, start)
        self._session = pid

    def wait(self, seconds: float) -> ProgramEnd | None:
        """See Watched."""
        if not is_running(*self._process):
            return ProgramEnd()
        time.sleep(seconds)
        return None

    def find_processes(self) -> list[Process]:
        """See Watched; only while its first process lives is the session surely its own."""
        return find_family(-1, self._session) if is_running(*self._process) else []


class JobLimits:
    """What a job may use; says so when it is too much."""

    def __init__(self, began: float, seconds: int | None, memory: int | None) -> None:
        self._deadline = began + seconds if seconds else None
        self._seconds = seconds or 0
        self._memory = memory
        self._next_look = 0.0

    def check(self, watched: Watched) -> EndReason | None:
        """Time is looked at always, memory about once a second."""
        if self._deadline is not None and time.time() >= self._deadline:
            return EndReason(State.TIMEOUT, f"it reached its time limit of {shorten_duration(self._seconds)}")
        began = time.monotonic()
        if self._memory is None or began < self._next_look:
            return None
        used = self._measure(watched.find_processes())
        self._next_look = time.monotonic() + max(1.0, 20 * (time.monotonic() - began))
        if used <= self._memory:
            return None
        shown = f"{shorten_memory(used >> 20 << 20)} of memory, requested {shorten_memory(self._memory)}"
        return EndReason(State.OUT_OF_MEMORY, f"used {shown}")

    def _measure(self, processes: list[Process]) -> int:
        resident = sum(process.resident for process in processes)
        # what processes share is in each one's figure: only when that is too much is it worth the exact one
        return resident if resident <= (self._memory or 0) else count_memory(processes)


def watch_to_end(
    watched: Watched, limits: JobLimits, is_cancelled: Callable[[], bool], on_verdict: Callable[[EndReason], None]
) -> ProgramEnd:
    """Wait for the program, ending it when it must; `on_verdict` is told before that."""
    verdict: EndReason | None = None
    kill_at = 0.0
    while (ending := watched.wait(_GLANCE)) is None:
        if verdict is None:
            verdict = _find_verdict(watched, limits, is_cancelled)
            if verdict is not None:
                on_verdict(verdict)
                _ask_to_end(watched.find_processes())
                kill_at = time.monotonic() + GRACE
        elif time.monotonic() > kill_at:
            signal_all(watched.find_processes(), signal.SIGKILL)
    _clear_processes(watched)
    return ProgramEnd(ending.exit_code, ending.signal, verdict)


def _find_verdict(watched: Watched, limits: JobLimits, is_cancelled: Callable[[], bool]) -> EndReason | None:
    if is_cancelled():
        return EndReason(State.CANCELLED)
    if watched.is_told_to_end:
        return EndReason(State.NODE_FAILED, "the host went down, or its session was closed, while it ran")
    return limits.check(watched)


def _clear_processes(watched: Watched) -> None:
    """End what the program left behind."""
    left = watched.find_processes()
    _ask_to_end(left)
    began = time.monotonic()
    while left and time.monotonic() - began < _PATIENCE:
        time.sleep(0.05)
        left = watched.find_processes()
        if time.monotonic() - began > GRACE:
            signal_all(left, signal.SIGKILL)


def _ask_to_end(processes: list[Process]) -> None:
    signal_all(processes, signal.SIGTERM)
    signal_all(processes, signal.SIGCONT)  # those that are stopped hear nothing before
