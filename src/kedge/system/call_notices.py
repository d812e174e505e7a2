# SPDX-License-Identifier: BSD-3-Clause
"""System calls that a seccomp filter leaves to this process: who makes them, with which arguments, and the answers.

The caller waits meanwhile. Structures and numbers: include/uapi/linux/seccomp.h.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import select
import struct
import sys

_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, process, flags; number, architecture, instruction pointer, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_IS_WAITING = 0x40082102  # SECCOMP_IOCTL_NOTIF_ID_VALID
_ADD = 0x40182103  # SECCOMP_IOCTL_NOTIF_ADDFD
_ADDITION = struct.Struct("=QIIII")  # id, flags; descriptor here, there; flags of the new one
_SEND_IT = 2  # SECCOMP_ADDFD_FLAG_SEND: it is the answer, too
_SET_FLAGS = 0x40082104  # SECCOMP_IOCTL_NOTIF_SET_FLAGS
_ZEROS = bytes(_NOTICE.size)
_PROCEED = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_PAGE = 4096
_LONGEST = 4096  # bytes of a path
_USUAL = 256  # bytes that are read at once: most paths are shorter
_AT_FDCWD = -100
_MOST_OPEN = 64


class Refusal(OSError):
    """The error that a call ends with; any other means that the kernel is to say what is wrong."""

    reason = ""  # for users, where the error alone says too little


def refuse(number: int = errno.EACCES, reason: str = "") -> Refusal:
    """The refusal with this error number."""
    refusal = Refusal(number, os.strerror(number))
    refusal.reason = reason
    return refusal


class _Memories:
    """The memory of callers; its files stay open, as most callers call again. Who leaves calls to this process leaves
    execve(2) to it, too, or `forget` is never called.
    """

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def read(self, notice: CallNotice, address: int, size: int) -> bytes:
        """At least one byte; raises OSError."""
        file = self._files.get(notice.process, -1)
        data = os.pread(file, size, address) if file >= 0 else b""
        if not data:  # the first time, or it has become another program
            data = os.pread(self._open(notice), size, address)
        if not data:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    def write(self, notice: CallNotice, address: int, data: bytes) -> None:
        """Put bytes there; raises OSError."""
        file = self._files.get(notice.process, -1)
        if file < 0 or not os.pwrite(file, data, address):
            os.pwrite(self._open(notice), data, address)

    def forget(self, process: int) -> None:
        """Forget a process that becomes another program: what it shared with its parent is the parent's alone."""
        file = self._files.pop(process, -1)
        if file >= 0:
            os.close(file)

    def _open(self, notice: CallNotice) -> int:
        old = self._files.pop(notice.process, -1)
        if old < 0 and len(self._files) >= _MOST_OPEN:
            old = self._files.pop(next(iter(self._files)))
        if old >= 0:
            os.close(old)
        file = self._files[notice.process] = notice.open_own("mem", os.O_RDWR)
        return file


memories = _Memories()


class CallNotice:
    """One call that waits for its answer."""

    __slots__ = ("_file", "architecture", "arguments", "identity", "number", "process")

    def __init__(self, file: int, fields: tuple[int, ...]) -> None:
        self._file = file
        self.identity, process, _, number, architecture, _, *arguments = fields
        self.architecture = architecture  # the kind of program, which says what the number means
        self.process = process  # a thread's number, as this process sees it
        self.number = number
        self.arguments = tuple(arguments)

    def read_path(self, position: int) -> bytes:
        """The text that an argument points to; raises OSError."""
        address, text = self.arguments[position], b""
        while len(text) < _LONGEST:
            place = address + len(text)
            text += memories.read(self, place, min(_PAGE - place % _PAGE, _USUAL))
            before, found, _ = text.partition(b"\0")
            if found:
                return before
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of the caller's; raises OSError."""
        data = b""
        while len(data) < size:
            data += memories.read(self, address + len(data), min(size - len(data), _PAGE))
        return data

    def write_memory(self, address: int, data: bytes) -> None:
        """Put bytes where the caller expects them; raises OSError."""
        memories.write(self, address, data)

    def open_file(self, descriptor: int) -> int:
        """A descriptor of what the caller has open, or of its current directory for AT_FDCWD; raises OSError."""
        number = (descriptor & 0xFFFFFFFF) - (1 << 32 if descriptor & 0x80000000 else 0)
        name = "cwd" if number == _AT_FDCWD else f"fd/{number}"
        return self.open_own(name, os.O_PATH)

    def open_own(self, name: str, flags: int) -> int:
        """Something of the caller's below /proc; raises OSError where it no longer waits.

        Then it has been killed, and its number may be another's, of any process of the user.
        """
        file = os.open(f"/proc/{self.process}/{name}", flags | os.O_CLOEXEC)
        try:
            fcntl.ioctl(self._file, _IS_WAITING, self.identity.to_bytes(8, sys.byteorder))
        except OSError:
            os.close(file)
            raise
        return file


class NoticeFile:
    """The file that `filter_calls_with_notices` returned, in the process that answers."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._data = bytearray(_NOTICE.size)
        try:  # noqa: SIM105 - contextlib costs a start
            fcntl.ioctl(
                file, _SET_FLAGS, 1
            )  # SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (Linux 6.6): no other CPU has to wake up
        except OSError:
            pass
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)

    def wait(self, milliseconds: int) -> bool:
        """Whether a call has come within this time, or the last process has ended."""
        return bool(self._poll.poll(milliseconds))

    def end_with_callers(self) -> None:
        """End this process once none is left that could make a call; `receive` alone would wait for ever."""
        _thread.start_new_thread(self._wait_for_end, ())

    def _wait_for_end(self) -> None:
        end = select.poll()
        end.register(self._file, 0)
        end.poll()
        os._exit(0)

    def receive(self) -> CallNotice:
        """The next call."""
        data = self._data
        while True:
            data[:] = _ZEROS
            try:
                fcntl.ioctl(self._file, _RECEIVE, data)
            except (FileNotFoundError, InterruptedError):  # a signal ended the call meanwhile
                continue
            return CallNotice(self._file, _NOTICE.unpack(data))

    def answer(self, notice: CallNotice, error: int = 0, value: int = 0) -> None:
        """Let the call return a value, or fail with an error number."""
        self._send(_ANSWER.pack(notice.identity, 0 if error else value, -error, 0))

    def proceed(self, notice: CallNotice) -> None:
        """Let the kernel do what the caller asked for (Linux 5.5)."""
        self._send(_ANSWER.pack(notice.identity, 0, 0, _PROCEED))

    def answer_with_file(self, notice: CallNotice, file: int, *, is_private: bool) -> None:
        """Let the call return a descriptor of an open file of ours (Linux 5.9); raises OSError.

        `is_private` says that programs which the caller becomes do not have it.
        """
        flags = os.O_CLOEXEC if is_private else 0
        try:
            fcntl.ioctl(self._file, _ADD, _ADDITION.pack(notice.identity, _SEND_IT, file, 0, flags))
        except OSError as problem:
            if problem.errno != errno.EINVAL:  # before Linux 5.14 it is no answer
                raise
            addition = bytearray(_ADDITION.pack(notice.identity, 0, file, 0, flags))
            number = fcntl.ioctl(self._file, _ADD, addition)
            self.answer(notice, value=number)

    def _send(self, answer: bytes) -> None:
        try:
            fcntl.ioctl(self._file, _SEND, answer)
        except OSError:
            return  # the caller is gone
