# SPDX-License-Identifier: BSD-3-Clause
"""Files written by processes of their own, so that whoever reads an archive does not wait for the file system.

To make a small file costs the kernel more than reading it from a tar costs us, and threads would wait for the
interpreter's lock after every call. Contents go over in memory that all share, in slots of many files each.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import signal
import struct
import threading
import warnings
from collections.abc import Callable

from kedge.errors import ProgramFailed
from kedge.system.forked_workers import fork_worker
from kedge.system.undivided import Undivided

LARGEST_FILE = 1 << 18  # bytes up to which a file is handed over whole
_SLOT = 1 << 20
_SLOTS_EACH = 4  # for each process: one in work, others waiting
_RECORD = struct.Struct("<QQII")  # token, offset or final size, length of what follows, kind
_MESSAGE = struct.Struct("<Ii")  # a slot, and how much is in it or which error it gave
_WHOLE, _PIECE, _END = range(3)
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class WriterProcesses:
    """Writes files below the open directory `folder`; `find_name` says where a token's file is.

    Nothing is certain to be there before `finish`, and an error may be raised by a later call than the one it is of.
    Either `finish` or `kill` must be called, from the thread that made this.
    """

    def __init__(self, folder: int, find_name: Callable[[int], bytes], count: int) -> None:
        self._folder = folder
        self._find_name = find_name
        slots = count * _SLOTS_EACH + 1  # and one that is being filled
        self._memory = mmap.mmap(-1, slots * _SLOT)
        self._view = memoryview(self._memory)
        self._tasks, self._task_input = os.pipe()
        self._results, self._result_input = os.pipe()
        self._free = list(range(slots))
        self._slot = self._free.pop()
        self._used = 0
        self._given = 0  # slots that are with the processes
        self._workers: list[int] = []
        self._fork(count)

    @classmethod
    def start(cls, folder: int, find_name: Callable[[int], bytes], count: int) -> WriterProcesses | None:
        """Start as many processes as can be had, at most `count`; None where there is none, and the caller writes.

        To be called, and what it gives noted down, within `Undivided`.
        """
        if count < 1 or threading.current_thread() is not threading.main_thread():
            return None
        try:
            crew = cls(folder, find_name, count)
        except OSError:  # no memory, no descriptors: it goes without
            return None
        if crew._workers:
            return crew
        crew.kill()
        return None

    def _fork(self, count: int) -> None:
        gc.freeze()  # a collection in a process would copy all of the memory
        try:
            for _ in range(count):
                with contextlib.suppress(OSError), warnings.catch_warnings():  # a limit on processes makes it fewer
                    warnings.simplefilter("ignore")  # that there are threads: a process takes none of their locks
                    self._workers.append(fork_worker(self._serve))
        finally:
            gc.unfreeze()
            os.close(self._tasks)
            os.close(self._result_input)

    # -- the caller's side

    def write(self, token: int, data: bytes | bytearray | memoryview) -> None:
        """Make a whole file of at most `LARGEST_FILE` bytes; `data` may be reused afterwards."""
        self._put(_WHOLE, token, 0, data)

    def write_piece(self, token: int, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write a part of a file, in any order; `end_file` must follow."""
        view = memoryview(data)
        for start in range(0, len(view), LARGEST_FILE):
            self._put(_PIECE, token, offset + start, view[start : start + LARGEST_FILE])

    def end_file(self, token: int, size: int) -> None:
        """Give a file that was written in pieces its size: what no piece covered is a hole."""
        self._put(_END, token, size, b"")

    def finish(self) -> None:
        """Wait until all is written; raises the OSError of what was not."""
        try:
            self._send()
            self._close_input()
            while raw := os.read(self._results, 4096):
                self._take_back(raw)
            statuses = []
            while self._workers:
                with Undivided():  # its pipe is closed: it ends at once
                    statuses.append(os.waitpid(self._workers[-1], 0)[1])
                    self._workers.pop()
            if self._given or any(statuses):
                raise _explain_death()
        finally:
            self.kill()

    def kill(self) -> None:
        """End the processes, whatever they have done; idempotent."""
        self._close_input()
        while self._workers:
            with Undivided():
                os.kill(self._workers[-1], signal.SIGKILL)
                os.waitpid(self._workers.pop(), 0)
        results, self._results = self._results, -1
        if results >= 0:
            os.close(results)
            self._view.release()
            self._memory.close()

    def _close_input(self) -> None:
        task_input, self._task_input = self._task_input, -1
        if task_input >= 0:
            os.close(task_input)

    def _put(self, kind: int, token: int, number: int, data: bytes | bytearray | memoryview) -> None:
        length = len(data)
        if self._used + _RECORD.size + length > _SLOT:
            self._send()
        start = self._slot * _SLOT + self._used
        _RECORD.pack_into(self._view, start, token, number, length, kind)
        start += _RECORD.size
        self._view[start : start + length] = data
        self._used += _RECORD.size + length

    def _send(self) -> None:
        """Hand the slot over, and take an empty one: wait for it if there is none."""
        try:
            os.write(self._task_input, _MESSAGE.pack(self._slot, self._used))
        except BrokenPipeError:
            raise _explain_death() from None
        self._given += 1
        self._used = 0
        while not self._free:
            raw = os.read(self._results, 4096)
            if not raw:
                raise _explain_death()
            self._take_back(raw)
        self._slot = self._free.pop()

    def _take_back(self, raw: bytes) -> None:
        for slot, code in _MESSAGE.iter_unpack(raw):
            self._given -= 1
            self._free.append(slot)
            if code:
                raise OSError(code, os.strerror(code))

    # -- a process's side: no locks, no imports, nothing that other threads may have been at when it was forked

    def _serve(self) -> None:
        os.close(self._task_input)
        os.close(self._results)
        while raw := os.read(self._tasks, _MESSAGE.size):
            slot, length = _MESSAGE.unpack(raw)
            code = 0
            try:
                self._write_slot(slot * _SLOT, slot * _SLOT + length)
            except OSError as problem:
                code = problem.errno or errno.EIO
            os.write(self._result_input, _MESSAGE.pack(slot, code))

    def _write_slot(self, start: int, end: int) -> None:
        while start < end:
            token, number, length, kind = _RECORD.unpack_from(self._view, start)
            start += _RECORD.size
            flags = _FLAGS | os.O_EXCL if kind == _WHOLE else _FLAGS
            file = os.open(self._find_name(token), flags, 0o600, dir_fd=self._folder)
            try:
                if kind == _END:
                    os.ftruncate(file, number)
                _write_at(file, number, self._view[start : start + length])
            finally:
                os.close(file)
            start += length


def _write_at(file: int, offset: int, view: memoryview) -> None:
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count


def _explain_death() -> ProgramFailed:
    return ProgramFailed("a process that wrote files was killed", hint="try again with --threads 1")
