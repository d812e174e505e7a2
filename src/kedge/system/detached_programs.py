# SPDX-License-Identifier: BSD-3-Clause
"""Programs that outlive who started them, and programs that begin only when their pid has been written down."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.system.spawn import close_all, fork_process, list_inherited, replace_process, run_detached

_GO = b"g"


def start_detached(argv: Sequence[str], environ: Mapping[str, str], *, log: Path, keep: Sequence[int] = ()) -> None:
    """Start a program in a session of its own that is nobody's child here; it has the open files of `keep`.

    Its standard output and error are added to `log`.
    """
    callers = [file for file in list_inherited() if file not in keep]  # pipes and locks of whoever called us
    streams = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def work() -> None:
        os.setsid()
        os.chdir("/")
        _reset_signals()
        close_all(callers)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (streams, 1), (streams, 2)):
            os.dup2(source, target)
        for file in keep:
            os.set_inheritable(file, True)
        replace_process(argv[0], argv, environ)

    try:
        run_detached(work)
    finally:
        os.close(streams)


def _reset_signals() -> None:
    """Let all signals do what they do in a fresh program: what a caller ignores or blocks would stay so."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):  # 32 and 33 are the C library's own
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@frozen
class Program:
    """What to start, and where."""

    argv: tuple[str, ...]
    environ: Mapping[bytes, bytes]
    directory: str
    umask: int = 0o022
    streams: tuple[int, ...] = ()  # empty: ours, and our session and terminal


class HeldProgram:
    """A child that waits for `go` before it becomes its program, and ends without a trace when we end before."""

    def __init__(self, program: Program) -> None:
        wait_end, self._go_end = os.pipe()
        self._trouble_end, tell_end = os.pipe()
        self.pid = fork_process()
        if self.pid == 0:
            try:
                close_all([self._go_end, self._trouble_end])
                _become(program, wait_end)
            except OSError as problem:
                os.write(tell_end, str(problem.errno).encode())
            finally:
                os._exit(127)
        close_all([wait_end, tell_end])

    def drop(self) -> None:
        """Let it end without having begun."""
        close_all([self._go_end, self._trouble_end])

    def go(self) -> None:
        """Let it begin; raises OSError when it cannot."""
        os.write(self._go_end, _GO)
        os.close(self._go_end)
        trouble = os.read(self._trouble_end, 16)
        os.close(self._trouble_end)
        if trouble:
            raise OSError(int(trouble), os.strerror(int(trouble)))


def _become(program: Program, wait_end: int) -> None:
    if program.streams:
        os.setsid()
    if os.read(wait_end, 1) != _GO:
        os._exit(127)
    _reset_signals()
    for target, source in enumerate(program.streams):
        os.dup2(source, target)
    os.umask(program.umask)
    os.chdir(program.directory)
    os.execve(program.argv[0], program.argv, program.environ)
