# SPDX-License-Identifier: BSD-3-Clause
"""System calls that a seccomp filter leaves to this process: who makes them, with which arguments, and the answers.

The caller waits meanwhile. Structures and numbers: include/uapi/linux/seccomp.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct

_NOTICE = struct.Struct("=QIIiIQ6Q")  # id, process, flags; number, architecture, instruction pointer, arguments
_ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
_RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_PAGE = 4096
_LONGEST = 4096  # bytes of a path
_AT_FDCWD = -100


class CallNotice:
    """One call that waits for its answer."""

    __slots__ = ("arguments", "identity", "number", "process")

    def __init__(self, identity: int, process: int, number: int, arguments: tuple[int, ...]) -> None:
        self.identity = identity
        self.process = process  # a thread's number, as this process sees it
        self.number = number
        self.arguments = arguments

    def read_path(self, position: int) -> bytes:
        """The text that an argument points to; raises OSError."""
        address, text = self.arguments[position], b""
        file = os.open(f"/proc/{self.process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(text) < _LONGEST:
                text += os.pread(file, _PAGE - (address + len(text)) % _PAGE, address + len(text))
                before, found, _ = text.partition(b"\0")
                if found:
                    return before
        finally:
            os.close(file)
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def open_file(self, descriptor: int) -> int:
        """A descriptor of what the caller has open, or of its current directory for AT_FDCWD; raises OSError."""
        number = (descriptor & 0xFFFFFFFF) - (1 << 32 if descriptor & 0x80000000 else 0)
        name = "cwd" if number == _AT_FDCWD else f"fd/{number}"
        return os.open(f"/proc/{self.process}/{name}", os.O_PATH | os.O_CLOEXEC)


class NoticeFile:
    """The file that `filter_calls_with_notices` returned, in the process that answers."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)

    def receive(self) -> CallNotice | None:
        """The next call; None once no process is left that could make one."""
        while True:
            ready = self._poll.poll()
            if not ready or not ready[0][1] & select.POLLIN:
                return None
            data = bytearray(_NOTICE.size)
            try:
                fcntl.ioctl(self._file, _RECEIVE, data)
            except (FileNotFoundError, InterruptedError):  # a signal ended the call meanwhile
                continue
            identity, process, _, number, _, _, *arguments = _NOTICE.unpack(data)
            return CallNotice(identity, process, number, tuple(arguments))

    def answer(self, notice: CallNotice, error: int = 0) -> None:
        """Let the call return 0, or fail with an error number."""
        try:
            fcntl.ioctl(self._file, _SEND, _ANSWER.pack(notice.identity, 0, -error, 0))
        except OSError:
            return  # the caller is gone
