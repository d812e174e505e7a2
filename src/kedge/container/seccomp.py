# SPDX-License-Identifier: BSD-3-Clause
"""Seccomp filters, put together from a few lines: which system calls a program may not make, or only seems to make.

A machine runs programs of a second kind too (32-bit ones), whose calls have other numbers: a filter that leaves them
out is none. Numbers: arch/*/include/generated/uapi/asm/unistd*.h; struct seccomp_data: include/uapi/linux/seccomp.h.
"""

from __future__ import annotations

import errno
import struct

from kedge.system import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Line = tuple[int, int, int, int]  # code, jump if true, jump if false, value: struct sock_filter

AUDIT_ARCHITECTURES = {
    **{"x86_64": 0xC000003E, "i386": 0x40000003, "aarch64": 0xC00000B7, "arm": 0x40000028},
    **{"ppc64le": 0xC0000015, "riscv64": 0xC00000F3, "s390x": 0x80000016},
}
ALLOW = 0x7FFF0000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_REFUSE = 0x00050000  # SECCOMP_RET_ERRNO: the call is not made, and fails with the number in the low bits
NOTIFY = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: another process answers the call
SUCCEED = _REFUSE  # with no number: it is not made, and returns 0

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

SECOND_KINDS = {"x86_64": ("i386",), "aarch64": ("arm",)}  # what else the kernels of a machine run
_X32 = 0x40000000  # x86_64: the numbers of a third kind begin here
# ioctl, then add_key, request_key, keyctl
_CALLS = {
    "x86_64": (16, (248, 249, 250)),
    "i386": (54, (286, 287, 288)),
    "aarch64": (29, (217, 218, 219)),
    "arm": (54, (309, 310, 311)),
    "ppc64le": (54, (269, 270, 271)),
    "riscv64": (29, (217, 218, 219)),
    "s390x": (54, (278, 279, 280)),
}
# socket, and socketcall where programs have made sockets by that; io_uring_setup does without both
_SOCKETS = {"x86_64": (41,), "aarch64": (198,), "ppc64le": (102, 326), "riscv64": (198,), "s390x": (102, 359)}
_IO_URING_SETUP = 425
# ioctl requests that put text into the terminal as if the user had typed it; the same numbers on all of these
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def _refuse_with(number: int) -> int:
    """The verdict that lets a call fail with an error number."""
    return _REFUSE | number


def load(offset: int) -> Line:
    """Read a word of struct seccomp_data; of an argument that is its lower half, on little machines."""
    return (_LOAD, 0, 0, offset)


def mask(bits: int) -> Line:
    """Keep some bits of what was read."""
    return (_AND, 0, 0, bits)


def equals(value: int, *, skip_if: int = 0, skip_unless: int = 0) -> Line:
    """Compare what was read, and skip lines accordingly."""
    return (_EQUAL, skip_if, skip_unless, value)


def give(verdict: int) -> Line:
    """End with a verdict."""
    return (_RETURN, 0, 0, verdict)


def assemble(lines: list[Line]) -> bytes:
    """The filter as the kernel takes it."""
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def prepare_containment(machine: str) -> Callable[[], None] | None:
    """What --contain calls just before the program starts; None where the numbers of system calls are unknown."""
    program = make_containing_filter(machine)
    if not program:
        return None
    keyctl = _CALLS[machine][1][2]

    def contain() -> None:
        try:  # noqa: SIM105 - contextlib costs a start
            libc.join_session_keyring(keyctl)  # the kernel itself looks there, for file systems that need keys
        except OSError:
            pass  # a kernel without keys, one that forbids them here, or too many keyrings: the filter remains
        libc.filter_calls(program)

    return contain


def make_containing_filter(machine: str) -> bytes:
    """What a contained program may not do: type into the caller's terminal, or reach the caller's keys.

    A key's number alone gives its owner access, whatever the session keyring: so the calls are as if unknown to the
    kernel. Empty where the numbers of calls are not known.
    """
    if machine not in _CALLS:
        return b""
    lines = [load(ARCHITECTURE)]
    for kind in (machine, *SECOND_KINDS.get(machine, ())):
        rules = _refuse_calls(kind, is_big=machine == "s390x")
        lines += [equals(AUDIT_ARCHITECTURES[kind], skip_unless=len(rules)), *rules]
    lines.append(give(_refuse_with(errno.ENOSYS)))  # no other kind of program can be judged
    return assemble(lines)


def make_socketless_filter(machine: str) -> bytes:
    """Return a filter for a program of this machine's kind without network and keys; empty: numbers unknown."""
    if machine not in _SOCKETS:
        return b""
    rules = [load(NUMBER)]
    if machine == "x86_64":
        rules += [(_AT_LEAST, 0, 1, _X32), give(_refuse_with(errno.ENOSYS))]
    for number in (*_SOCKETS[machine], _IO_URING_SETUP, *_CALLS[machine][1]):
        rules += [equals(number, skip_unless=1), give(_refuse_with(errno.EPERM))]
    rules.append(give(ALLOW))
    other = give(_refuse_with(errno.ENOSYS))
    return assemble([load(ARCHITECTURE), equals(AUDIT_ARCHITECTURES[machine], skip_unless=len(rules)), *rules, other])


def _refuse_calls(kind: str, *, is_big: bool) -> list[Line]:
    ioctl, keys = _CALLS[kind]
    lines = [load(NUMBER)]
    if kind == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32), give(_refuse_with(errno.ENOSYS))]
    for number in keys:
        lines += [equals(number, skip_unless=1), give(_refuse_with(errno.ENOSYS))]
    return [
        *lines,
        equals(ioctl, skip_if=1),
        give(ALLOW),
        load(ARGUMENTS + 8 + (4 if is_big else 0)),  # the kernel looks at the lower half of the request only
        equals(_TIOCSTI, skip_if=1),
        equals(_TIOCLINUX, skip_unless=1),
        give(_refuse_with(errno.EPERM)),
        give(ALLOW),
    ]
