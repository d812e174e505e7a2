# SPDX-License-Identifier: BSD-3-Clause
"""Becoming a program by way of a tiny one in sealed memory, so that /proc/self/exe is never the interpreter.

While the kernel starts a program, /proc/self/exe still is the file of the one before. An image whose script begins with
'#!/proc/self/exe' would so hold Python itself, and where that file is the user's own (Conda, uv, pyenv) it could change
it: CVE-2019-5736 in another form. So this process first becomes a program of a few instructions that makes the system
calls of a table, one after the other; the last exec is one of them. It is written for each start, with all that the
program gets, into a file in memory that nobody can change.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from kedge.system.libc import F_ADD_SEALS, MFD_ALLOW_SEALING, MFD_CLOEXEC, create_memory
from kedge.system.spawn import ELFMAG, fork_detached, replace_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kedge.system.elf import ElfFile

_CODE = 0x10000000  # where the header and the instructions lie in memory
_TABLE = 0x10010000  # where the table lies, and what it points to behind it: another page, which is not executable
_GAP = _TABLE - _CODE  # also in the file; no machine has larger pages
_HEADER = 64 + 2 * 56  # ELF header and two program headers
_RESULT = 32  # where an entry of the table keeps what its call returned
_ENTRY = struct.Struct("<4Qq")  # number of the call, three arguments, result
_MFD_EXEC = 0x10  # Linux 6.3; before, all such files can be executed
_ALL_SEALS = 0xF  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
_STATUS = 255
_F_SETFD, _FD_CLOEXEC = 2, 1

_GENERIC = {"execve": 221, "fcntl": 25, "fchmod": 52, "read": 63, "write": 64, "exit_group": 94}
# For each machine: its number in ELF files and the flags it wants there, its system calls, and the instructions, which
# point to the table, load the number of a call and three arguments, make it, store its result, and take the next entry.
_MACHINES = {
    "x86_64": (
        (62, 0),
        {"execve": 59, "fcntl": 72, "fchmod": 91, "read": 0, "write": 1, "exit_group": 231},
        "bb00000110488b03488b7b08488b7310488b53180f05488943204883c328ebe5",
    ),
    "aarch64": (
        (183, 0),
        _GENERIC,
        "3300a2d2680240f9600640f9610a40f9620e40f9010000d4601200f973a20091f9ffff17",
    ),
    "riscv64": (
        (243, 0),
        _GENERIC,
        "b704011083b8040003b5840083b5040103b684017300000023b0a402938484026ff05ffe",
    ),
    "ppc64le": (
        (21, 2),
        {"execve": 11, "fcntl": 55, "fchmod": 94, "read": 3, "write": 4, "exit_group": 234},
        "0110e03f00001fe808007fe810009fe81800bfe80200004420007ff82800ff3be4ffff4b",
    ),
}


def can_hand_over() -> bool:
    """Whether this machine's instructions are known, and it lets programs in memory be started."""
    if os.uname().machine not in _MACHINES:
        return False
    try:
        os.close(create_memory_file())
    except OSError:
        return False  # vm.memfd_noexec
    return True


def is_own_program(file: ElfFile) -> bool:
    """Whether a file is a 64-bit program for this machine."""
    machine = os.uname().machine
    return (
        (file.bits, file.order) == (64, "little") and machine in _MACHINES and file.machine == _MACHINES[machine][0][0]
    )


def hand_over(attempts: list[StartAttempt], complaint: str = "") -> OSError:
    """Become the first of the programs that can be started; where none can, say the complaint and end.

    The program in memory can explain nothing. Without a complaint another process is there that can: this returns in
    that one, with the reason why the very first program was not started, and when it ends, so does the first.
    """
    program = create_memory_file()
    if complaint:
        _fill(program, make_program(attempts, program, complaint=os.fsencode(complaint)))
        return _become(program, program)
    report_from, report_to = os.pipe()
    ended_from, ended_to = os.pipe()
    _fill(program, make_program(attempts, program, report_to, ended_from))
    if fork_detached():
        for file in (program, report_to, ended_from):
            os.close(file)
        answer = os.read(report_from, 8)
        if not answer:
            os._exit(0)
        number = abs(int.from_bytes(answer, "little", signed=True))
        return OSError(number, os.strerror(number))
    os.close(ended_to)
    return _become(program, program, report_to, ended_from)


def _become(program: int, *inherited: int) -> OSError:
    for file in inherited:
        os.set_inheritable(file, True)
    try:
        replace_process(program, ["kedge"], {})
    except OSError as problem:
        return problem


class StartAttempt:
    """One program that may be started: its path, its arguments and its variables."""

    def __init__(self, path: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.path = os.fsencode(path)
        self.argv = [os.fsencode(word) for word in argv]
        self.environ = [os.fsencode(f"{name}={value}") for name, value in environ.items()]
        for text in (self.path, *self.argv, *self.environ):
            if b"\0" in text:
                raise ValueError("embedded null byte")
        self.size = sum(map(len, (*self.argv, *self.environ)))


class _Table:
    """System calls, at most so many, and behind them what they point to."""

    def __init__(self, calls: dict[str, int], most: int) -> None:
        self._calls = calls
        self._entries: list[bytes] = []
        self._start = _TABLE + most * _ENTRY.size
        self._data = bytearray(8)  # room for the byte that is read at the end
        self.scratch = self._start

    def add(self, call: str, *arguments: int) -> int:
        """The next call; returns where its result will be."""
        place = _TABLE + len(self._entries) * _ENTRY.size + _RESULT
        self._entries.append(_ENTRY.pack(self._calls[call], *(*arguments, 0, 0, 0)[:3], 0))
        return place

    def put(self, data: bytes) -> int:
        """Place data; returns its address."""
        self._data += bytes(-len(self._data) % 8)
        self._data += data
        return self._start + len(self._data) - len(data)

    def put_list(self, texts: list[bytes]) -> int:
        """Place texts, and a list of pointers to them that ends with none; returns the list's address."""
        addresses = [self.put(text + b"\0") for text in texts]
        return self.put(struct.pack(f"<{len(addresses) + 1}Q", *addresses, 0))

    def render(self) -> bytes:
        return b"".join(self._entries).ljust(self._start - _TABLE, b"\0") + bytes(self._data)


def _render_file(machine: tuple[int, int], code: bytes, table: bytes) -> bytes:
    """An ELF program of two pieces: instructions, and what may be written."""
    number, flags = machine
    identity = ELFMAG + bytes((2, 1, 1)) + bytes(9)
    header = struct.pack("<2HI3QI6H", 2, number, 1, _CODE + _HEADER, 64, 0, flags, 64, 56, 2, 0, 0, 0)
    size = _HEADER + len(code)
    readable, writable = 5, 6
    pieces = struct.pack("<2I6Q", 1, readable, 0, _CODE, _CODE, size, size, _GAP)
    pieces += struct.pack("<2I6Q", 1, writable, _GAP, _TABLE, _TABLE, len(table), len(table), _GAP)
    return (identity + header + pieces + code).ljust(_GAP, b"\0") + table


def make_program(
    attempts: list[StartAttempt], own: int, *pipes: int, complaint: bytes = b"", machine: str = ""
) -> bytes:
    """A program that makes the attempts in turn, and if all fail ends with 255.

    `own` is the program's file: it takes its own permissions away, so that an image cannot start it in turn. Of the two
    pipes it writes to one what the first attempt returned, 8 bytes, and waits until nobody holds the other end of the
    second; without pipes it prints the complaint.
    """
    numbers, calls, code = _MACHINES[machine or os.uname().machine]
    table = _Table(calls, len(attempts) + 7)
    table.add("fchmod", own, 0)
    for descriptor in (own, *pipes):
        table.add("fcntl", descriptor, _F_SETFD, _FD_CLOEXEC)
    results = []
    for attempt in attempts:
        pointers = table.put_list(attempt.argv), table.put_list(attempt.environ)
        results.append(table.add("execve", table.put(attempt.path + b"\0"), *pointers))
    if pipes:
        report, wait = pipes
        table.add("write", report, results[0], 8)
        table.add("read", wait, table.scratch, 1)
    else:
        table.add("write", 2, table.put(complaint), len(complaint))
    table.add("exit_group", _STATUS)
    return _render_file(numbers, bytes.fromhex(code), table.render())


def create_memory_file() -> int:
    """An empty file in memory that may be executed and sealed; OSError where the host forbids it."""
    flags = MFD_CLOEXEC | MFD_ALLOW_SEALING
    try:
        return create_memory("kedge", flags | _MFD_EXEC)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise
        return create_memory("kedge", flags)  # before Linux 6.3


def _fill(file: int, program: bytes) -> None:
    """Write the program into its file, for good; what lies between its two pieces is a hole."""
    os.write(file, program[:_GAP].rstrip(b"\0"))
    os.lseek(file, _GAP, os.SEEK_SET)
    unwritten = program[_GAP:]
    while unwritten:
        unwritten = unwritten[os.write(file, unwritten) :]
    seal_file(file)


def seal_file(file: int) -> None:
    """Let nobody change a file in memory any more."""
    fcntl.fcntl(file, F_ADD_SEALS, _ALL_SEALS)


# A program of ours that runs inside a container without being in its image: held open, and started by its number.
#
# A bind would change the container, and ranks share one only where it is the same. A copy in memory also runs where the
# directory of kedge is mounted noexec, or is not readable once this process is in a user namespace.

_PIECE = 64 << 10


def hold_program(path: str) -> str:
    """Open a program so that this process and what it becomes can start it; returns the path to start it by.

    OSError where it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        held = create_memory_file()
    except OSError:  # vm.memfd_noexec
        held = file
    else:
        while content := os.read(file, _PIECE):
            os.write(held, content)
        os.close(file)
        seal_file(held)
        held = _open_for_reading(held)
    os.set_inheritable(held, True)
    return f"/proc/self/fd/{held}"


def _open_for_reading(file: int) -> int:
    """Open the same file to read: the kernel starts no program that somebody has open to write."""
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)
