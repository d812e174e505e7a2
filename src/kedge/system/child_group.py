# SPDX-License-Identifier: BSD-3-Clause
"""Several programs at once: what they print is handed over as it comes, and all of them can be ended.

The kernel gives this process whatever its descendants leave behind, so that nothing outlives the group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kedge.base.frozen import frozen
from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.libc import PR_SET_CHILD_SUBREAPER
from kedge.system.process_tree import find_family, signal_all
from kedge.system.programs import find_program

_DRAIN = 1.0  # seconds that output may still come after a program's end, from what it left behind
_PIECE = 1 << 16
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@frozen
class GroupMember:
    """A program that has ended."""

    index: int  # in the order of their starts
    status: int  # as a shell shows it: 128 + N after signal N


class ChildGroup:
    """The programs; `hear` is told which one printed what, and whether on standard error."""

    def __init__(self, hear: Callable[[int, bool, bytes], None]) -> None:
        self._hear = hear
        self._pids: dict[int, int] = {}  # index of each that lives
        self._started = 0
        self._pipes: dict[int, tuple[int, bool]] = {}
        self._files: dict[int, Callable[[], None]] = {}  # other files, and what to do when they are ready
        self._poll = select.poll()
        self._drain_until = 0.0
        self._before: dict[int, Any] = {}  # what a signal did that is handed on

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], *, stdin: int | None = None, own_group: bool = True
    ) -> int:
        """Start one; `stdin` is an open file, None: it reads nothing. Returns its index."""
        from kedge.system.libc import control_process  # late: ctypes

        control_process(PR_SET_CHILD_SUBREAPER, 1)
        program = find_program(argv[0], environment.get("PATH"))
        if program is None:
            raise ProgramMissing(f"the program '{argv[0]}' is not installed on this host")
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
        pipes = [os.pipe(), os.pipe()]
        actions = [(os.POSIX_SPAWN_DUP2, given, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, pipes[number][1], number + 1) for number in (0, 1)]
        grouped: dict[str, Any] = {"setpgroup": 0} if own_group else {}
        try:
            pid = os.posix_spawn(
                program, list(argv), dict(environment), file_actions=actions, setsigmask=[],
                setsigdef=_DEFAULTS, **grouped,
            )  # fmt: skip
        except OSError as problem:
            for reading, _ in pipes:
                os.close(reading)
            raise ProgramFailed(f"'{argv[0]}' could not be started: {problem.strerror}") from problem
        finally:
            for _, writing in pipes:
                os.close(writing)
            if stdin is None:
                os.close(given)
        index = self._started
        self._started += 1
        self._pids[pid] = index
        for number, (reading, _) in enumerate(pipes):
            self._pipes[reading] = (index, number == 1)
            self._poll.register(reading, select.POLLIN | select.POLLHUP)
        return index

    @property
    def is_running(self) -> bool:
        """Whether one of them lives, or output may still come."""
        return bool(self._pids) or (bool(self._pipes) and time.monotonic() < self._drain_until)

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of processes of the group that live."""
        return tuple(self._pids)

    def wait(self, seconds: float) -> list[GroupMember]:
        """Hand over what comes within this time; who ended meanwhile. Returns as soon as there is anything."""
        for file, _ in self._poll.poll(seconds * 1000) if self._pipes or self._files else ():
            if file in self._pipes:
                self._read(file)
            elif file in self._files:  # one that was ready before it may have closed it
                self._files[file]()
        if not self._pipes and not self._files and self._pids:
            time.sleep(min(seconds, 0.05))
        return self._reap()

    def watch_file(self, file: int, events: int, act: Callable[[], None]) -> None:
        """Call `act` in each `wait` while the file is ready, as `poll` has it; the file stays the caller's."""
        self._poll.register(file, events)
        self._files[file] = act

    def forget_file(self, file: int) -> None:
        """Watch it no more; does nothing if nobody watches it."""
        if self._files.pop(file, None) is not None:
            self._poll.unregister(file)

    def send_signal(self, number: int) -> None:
        """Send a signal to the programs themselves."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def hand_on_signals(self) -> None:
        """Until `close` send the programs what users say by SIGUSR1 and SIGUSR2; the main thread alone can do that."""
        with contextlib.suppress(ValueError):
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                self._before[number] = signal.signal(number, lambda got, _frame: self.send_signal(got))

    def end(self, *, grace: float, signals: Sequence[int] = (signal.SIGTERM,)) -> None:
        """End all: with each signal, `grace` seconds apart, then with SIGKILL whatever is left of their families."""
        for number in signals:
            self.send_signal(number)
            self._wait_for_end(grace)
        self.sweep()
        self._wait_for_end(1.0)
        self.close()

    def sweep(self) -> None:
        """Kill all descendants of this process, also what lost its parent."""
        for _ in range(20):
            family = find_family(os.getpid())
            if not family:
                return
            signal_all(family, signal.SIGKILL)
            self._reap()
            time.sleep(0.02)

    def close(self) -> None:
        """Let go of the pipes and of signals."""
        while self._before:
            signal.signal(*self._before.popitem())
        for file in list(self._pipes):
            self._drop(file)

    def _wait_for_end(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._pids and time.monotonic() < until:
            self.wait(0.05)

    def _read(self, file: int) -> None:
        data = os.read(file, _PIECE)
        if data:
            self._hear(*self._pipes[file], data)
        else:
            self._drop(file)

    def _drop(self, file: int) -> None:
        self._poll.unregister(file)
        os.close(file)
        del self._pipes[file]

    def _reap(self) -> list[GroupMember]:
        """Wait for all that ended; those that are not ours by name were left behind by one that is."""
        ended: list[GroupMember] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._pids:
                code = os.waitstatus_to_exitcode(status)
                ended.append(GroupMember(self._pids.pop(pid), code if code >= 0 else 128 - code))
                self._drain_until = time.monotonic() + _DRAIN
        return ended
