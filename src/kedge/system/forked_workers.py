# SPDX-License-Identifier: BSD-3-Clause
"""Work that is done by several processes forked from this one: they have all of its memory and share nothing after.

For work that the interpreter's lock would serialise on threads, such as making many small files.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import struct
import threading
import warnings
from collections.abc import Callable, Iterator

import kedge.errors
from kedge.errors import KedgeError, ProgramFailed
from kedge.system.libc import PR_SET_PDEATHSIG, control_process
from kedge.system.undivided import Undivided

_ITEM = struct.Struct("<I")
_MAXIMUM_ITEMS = 4096 // _ITEM.size  # a pipe holds a page, however many others there are
_RECORD = struct.Struct("<cQ")  # what it is, and what was done or the length of what follows
_ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_AT_ONCE = 4096  # PIPE_BUF: writes of up to this size are not mixed with those of others


def share_work(items: int, count: int, work: Callable[[int], int], advance: Callable[[int], None]) -> None:
    """Call `work` for 0 … items-1, each in one of `count` processes; it returns what `advance` is to be told.

    The first error of any of them ends all, and is raised here. Nothing is left running, however this ends.
    """
    if threading.current_thread() is not threading.main_thread():
        count = 1  # other threads work, and a child forked now could wait for their locks forever
    step = max(1, -(-items // _MAXIMUM_ITEMS))
    crew = _Crew(lambda first: sum(work(item) for item in range(first, min(first + step, items))))
    crew.put(range(0, items, step))
    try:
        crew.start(min(count, items))
        crew.follow(advance)
        crew.wait()
    except BaseException:
        crew.kill()
        raise


def fork_worker(serve: Callable[[], None]) -> int:
    """A process that calls `serve` and ends; it dies with us, and signals end it. Its process id.

    To be called, and the number noted down, within `Undivided`.
    """
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)  # our handlers must not raise in the worker
    worker = -1
    try:
        worker = os.fork()
    finally:
        if worker:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if worker:
        return worker
    status = 1
    try:
        control_process(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if os.getppid() == parent:
            serve()
            status = 0
    finally:
        os._exit(status)


class _Crew:
    """The processes, and the two pipes between them and us."""

    def __init__(self, work: Callable[[int], int]) -> None:
        self._work = work
        self._workers: list[int] = []
        self._tasks, self._task_input = os.pipe()
        self._results, self._result_input = os.pipe()
        self._open = [self._tasks, self._results]  # to be closed at the end

    def put(self, items: range) -> None:
        """Put all the work into the pipe; whoever is free takes the next piece."""
        os.write(self._task_input, b"".join(_ITEM.pack(item) for item in items))
        os.close(self._task_input)

    def start(self, count: int) -> None:
        """Fork; a limit on processes makes it fewer."""
        gc.freeze()  # a collection in a worker would copy all of the memory
        try:
            for _ in range(count if count > 1 else 0):
                with contextlib.suppress(OSError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that there are threads: they only wait for the end of our parent
                    self._fork()
        finally:
            gc.unfreeze()
            os.close(self._result_input)

    def _fork(self) -> None:
        with Undivided():
            self._workers.append(fork_worker(self._serve))

    def _serve(self) -> None:
        os.close(self._results)
        try:
            for item in self._take():
                os.write(self._result_input, _RECORD.pack(b"+", self._work(item)))
        except Exception as problem:
            packed = _pack_error(problem)
            os.write(self._result_input, _RECORD.pack(b"!", len(packed)) + packed)

    def _take(self) -> Iterator[int]:
        while raw := os.read(self._tasks, _ITEM.size):
            yield _ITEM.unpack(raw)[0]

    def follow(self, advance: Callable[[int], None]) -> None:
        """Pass on what is done until the last worker has ended, and do the work ourselves where there is none."""
        if not self._workers:
            for item in self._take():
                advance(self._work(item))
        waiting = b""
        while piece := os.read(self._results, 65536):
            waiting += piece
            while len(waiting) >= _RECORD.size:
                kind, amount = _RECORD.unpack_from(waiting)
                length = _RECORD.size if kind == b"+" else _RECORD.size + amount
                if len(waiting) < length:
                    break
                if kind != b"+":
                    raise _unpack_error(waiting[_RECORD.size : length])
                advance(amount)
                waiting = waiting[length:]

    def wait(self) -> None:
        """Wait for all; raises ProgramFailed where one did not end well."""
        statuses = []
        while self._workers:
            with Undivided():  # its pipe is closed: it ends at once
                statuses.append(os.waitpid(self._workers[-1], 0)[1])
                self._workers.pop()
        self._close()
        if any(statuses):
            raise ProgramFailed("a worker process was killed", hint="try again with --threads 1")

    def kill(self) -> None:
        """End those that are left."""
        with Undivided():
            for worker in self._workers:
                os.kill(worker, signal.SIGKILL)
            while self._workers:
                os.waitpid(self._workers.pop(), 0)
        self._close()

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())


def _pack_error(problem: Exception) -> bytes:
    """What an error is made of, in a form that fits through the pipe."""
    if isinstance(problem, KedgeError):
        name = next(kind.__name__ for kind in type(problem).__mro__ if kind.__module__ == kedge.errors.__name__)
        parts: list[object] = [name, problem.message[:400], problem.hint and problem.hint[:200], problem.context]
    elif isinstance(problem, OSError):
        parts = ["OSError", problem.errno, problem.strerror, {}]
    else:
        parts = ["RuntimeError", f"{type(problem).__name__}: {problem}"[:400], None, {}]
    packed = json.dumps(parts).encode()
    return packed if len(packed) <= _AT_ONCE - _RECORD.size else json.dumps([*parts[:3], {}]).encode()


def _unpack_error(packed: bytes) -> Exception:
    try:
        name, message, hint, context = json.loads(packed)
    except ValueError:
        return ProgramFailed("a process that did a part of the work failed")
    if name == "OSError":
        return OSError(message, hint)
    if name == "RuntimeError":
        return RuntimeError(message)
    error: Exception = getattr(kedge.errors, name)(message, hint=hint, context=context)
    return error
