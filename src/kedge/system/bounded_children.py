# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of work that may hang or crash: each in a forked child with a deadline, many at once, none waited for.

A thread that hangs in a dead file system or driver keeps its whole process from ending; a child does not.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Sequence

from kedge.base.frozen import frozen
from kedge.system.libc import PR_SET_PDEATHSIG, control_process
from kedge.system.spawn import close_all, list_inherited, list_private

ANSWERED, LATE, DIED, REFUSED = "answered", "late", "died", "refused"
_AT_ONCE = 16  # children: a login node may allow few processes
_LONGEST_ANSWER = 1 << 20
_REAP_TRIES = 100  # of a millisecond each
_KILLED = 128 + signal.SIGKILL
_MASKED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_unburied: set[int] = set()  # children that were killed and had not ended yet: a zombie each, until the next time


@frozen
class BoundedTask:
    """What to do, and for how long at most."""

    name: str
    work: Callable[[], bytes]
    seconds: float


@frozen
class TaskOutcome:
    """What became of a task: `answer` counts where `state` is ANSWERED, `status` (as a shell shows it) where DIED."""

    state: str
    seconds: float
    answer: bytes = b""
    status: int = 0


def run_bounded(tasks: Sequence[BoundedTask], *, seconds: float, at_once: int = _AT_ONCE) -> dict[str, TaskOutcome]:
    """Run all of them, in children that have our memory; the outcomes by name, after `seconds` at the latest.

    A child that is late is killed and left alone: what hangs in the kernel never ends. What a child has started is
    killed with it, and when it has answered.
    """
    race = _Race(tasks, time.monotonic() + seconds, at_once)
    gc.freeze()  # a collection in a child would copy all of the memory
    try:
        race.run()
    finally:
        gc.unfreeze()
        race.end()
    return {task.name: race.outcomes[task.name] for task in tasks}


class _Child:
    """One task at work."""

    def __init__(self, task: BoundedTask, pid: int, end: float) -> None:
        self.task = task
        self.pid = pid
        self.began = time.monotonic()
        self.end = min(end, self.began + task.seconds)
        self.answer = b""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class _Race:
    """All tasks, those that are at work by their pipes, and the outcomes so far."""

    def __init__(self, tasks: Sequence[BoundedTask], end: float, at_once: int) -> None:
        self.outcomes: dict[str, TaskOutcome] = {}
        self._waiting = list(tasks)
        self._working: dict[int, _Child] = {}
        self._end = end
        self._at_once = at_once
        self._poll = select.poll()

    def run(self) -> None:
        """Start, listen and kill until every task has its outcome."""
        while self._waiting or self._working:
            self._start()
            if not self._working:
                break
            nearest = min(child.end for child in self._working.values())
            for pipe, _ in self._poll.poll(max(0.0, nearest - time.monotonic()) * 1000):
                self._listen(pipe)
            now = time.monotonic()
            for pipe in [pipe for pipe, child in self._working.items() if child.end <= now]:
                self._finish(pipe, LATE)
        for task in self._waiting:
            self.outcomes[task.name] = TaskOutcome(LATE if time.monotonic() >= self._end else REFUSED, 0.0)

    def end(self) -> None:
        """Kill who is still at work, as after an interrupt; bury those of the killed that are dead by now."""
        for pipe in list(self._working):
            self._finish(pipe, LATE)
        for pid in list(_unburied):
            if _bury(pid) is not None:
                _unburied.discard(pid)

    def _start(self) -> None:
        while self._waiting and len(self._working) < self._at_once and time.monotonic() < self._end:
            try:
                reading, writing = os.pipe()
            except OSError:  # the limit on open files: others may end
                return
            try:
                pid = _fork(self._waiting[0], writing)
            except OSError:  # the limit on processes: others may end
                os.close(reading)
                return
            finally:
                os.close(writing)
            self._working[reading] = _Child(self._waiting.pop(0), pid, self._end)
            self._poll.register(reading, select.POLLIN | select.POLLHUP)

    def _listen(self, pipe: int) -> None:
        child = self._working[pipe]
        piece = os.read(pipe, 1 << 16)
        child.answer += piece
        if len(child.answer) > _LONGEST_ANSWER:
            _kill(child.pid)
            self._finish(pipe, DIED, _KILLED)  # which is known, however long it takes to end
        elif not piece:
            self._finish(pipe, ANSWERED if child.answer.endswith(b"\n") else DIED)

    def _finish(self, pipe: int, state: str, status: int = 0) -> None:
        child = self._working.pop(pipe)
        seconds = child.seconds
        self._poll.unregister(pipe)
        os.close(pipe)
        # Before it is buried, so that its number is nobody else's: a program that hangs would outlive it.
        with contextlib.suppress(OSError):  # it has not begun, or is alone and gone
            os.killpg(child.pid, signal.SIGKILL)
        if state == LATE:
            _kill(child.pid)
            _unburied.add(child.pid)
        seen = 0 if state == LATE else _reap(child.pid)
        self.outcomes[child.task.name] = TaskOutcome(state, seconds, child.answer, status or seen)


def _fork(task: BoundedTask, writing: int) -> int:
    parent = os.getpid()
    # A signal to all of the terminal's processes must not raise KeyboardInterrupt in a child that runs our code still.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _MASKED)
    pid = -1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are threads: a child that hangs for that is late, and no more
            pid = os.fork()
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pid:
        return pid
    try:
        for number in _MASKED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        leave_parent(parent, writing)
        answer = task.work()
        while answer:
            answer = answer[os.write(writing, answer) :]
        os.write(writing, b"\n")
    finally:
        os._exit(0)


def leave_parent(parent: int, kept: int = -1) -> None:
    """In a child: hold nothing that somebody waits for, and end with the parent.

    A pipe of the caller's would not end while a child hangs.
    """
    os.setsid()
    control_process(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    close_all([file for file in (*list_inherited(), *list_private()) if file != kept])
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # where SIGCHLD is ignored the kernel buries the dead itself
        os.kill(pid, signal.SIGKILL)


def _reap(pid: int) -> int:
    """The status of a child that has closed its pipe, which ends at once; 0 where it does not."""
    for _ in range(_REAP_TRIES):
        status = _bury(pid)
        if status is not None:
            return status
        time.sleep(0.001)
    _unburied.add(pid)
    return 0


def _bury(pid: int) -> int | None:
    """The status of a child that has ended, as a shell shows it; 0 where another has taken it; None: it lives."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    code = os.waitstatus_to_exitcode(status)
    return None if not ended else code if code >= 0 else 128 - code
