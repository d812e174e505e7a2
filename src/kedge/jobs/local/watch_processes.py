# SPDX-License-Identifier: BSD-3-Clause
"""Watching a job's processes until they are gone: time, memory, and whether somebody cancelled it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from kedge.base.duration import shorten_duration
from kedge.base.frozen import frozen
from kedge.cluster.job_state import State
from kedge.cluster.memory import shorten_memory
from kedge.system.owned_names import is_running
from kedge.system.process_tree import Process, count_memory, find_family, signal_all

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
