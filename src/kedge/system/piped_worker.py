# SPDX-License-Identifier: BSD-3-Clause
"""A kedge process beside this one: a pipe for what it gets, two to talk, and memory that both share.

It may be started from a process that has threads, because it begins with a program of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading

from kedge.system.libc import create_memory
from kedge.system.start_kedge import own_command

INPUT, MESSAGES, MEMORY, REPLIES = 0, 1, 3, 4  # open files of the worker
_PIPE_SIZE = 1 << 20  # what a user may ask for, where the administrator has not said otherwise
# What a terminal or a batch system sends to all is for the process that started it to answer. The worker has it blocked
# from its very beginning: while Python starts, SIGINT would be a traceback.
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ABOVE = 10  # files for the worker are moved there first, so that none of them has the number of another


class PipedWorker:
    """`kedge WORDS`, which reads what is written to `input`, talks by `messages` and `replies`, and shares `memory`.

    It ends when its pipes do, so it does not outlive this process. OSError where it cannot be started.
    """

    def __init__(self, *words: str) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as given:
            reading, self.input = _make_pipe(given, undo)
            self.messages, messaging = _make_pipe(undo, given)
            replied, self.replies = _make_pipe(given, undo)
            with contextlib.suppress(OSError):  # the user has many pipes: they are small then
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
            self.memory = create_memory("kedge-worker")
            undo.callback(os.close, self.memory)
            actions = []
            for file, number in (
                (reading, INPUT), (messaging, MESSAGES), (self.memory, MEMORY), (replied, REPLIES),
            ):  # fmt: skip
                moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
                given.callback(os.close, moved)
                actions.append((os.POSIX_SPAWN_DUP2, moved, number))
            command = own_command(*words)
            ignored = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python, and what is ignored stays so in a new program
            self._pid = os.posix_spawn(
                command[0], command, os.environ, file_actions=actions, setsigmask=_ENDINGS, setsigdef=ignored
            )
            undo.pop_all()

    def kill(self) -> None:
        """End it, whatever it does; from any thread, and twice does no harm."""
        with self._lock, contextlib.suppress(ProcessLookupError):  # the kernel has buried it: SIGCHLD is ignored
            if not self._is_over:
                os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait for its end, and let go of all but `input`; to be called once."""
        with contextlib.suppress(ChildProcessError):  # as above
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with self._lock:  # from here on its number may be another's
            self._is_over = True
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        for file in (self.messages, self.replies, self.memory):
            os.close(file)


def _make_pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe, each end of which one of the two closes."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
