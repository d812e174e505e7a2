# SPDX-License-Identifier: BSD-3-Clause
"""Root emulation for --fakeroot where root is the only user there is: a seccomp filter that lets calls succeed unheard.

Package managers give files to users that do not exist here and make device nodes. The kernel would refuse; with the
filter the calls return success and do nothing. No library is put into the container and nothing is traced, so static
programs and old C libraries are served as well. What asks afterwards who owns a file still sees one owner.

The numbers are those of arch/*/include/generated/uapi/asm/unistd*.h; the list follows what dpkg, rpm and tar call.
"""

from __future__ import annotations

import struct

from kedge.posix import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# chown fchown lchown fchownat; setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid; capset
_FAKED = {
    "x86_64": (92, 93, 94, 260, 105, 106, 113, 114, 117, 119, 116, 122, 123, 126),
    "aarch64": (55, 54, 146, 144, 145, 143, 147, 149, 159, 151, 152, 91),
}
# number of the call, and which argument is the mode
_MAKE_NODE = {"x86_64": ((133, 1), (259, 2)), "aarch64": ((33, 2),)}

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_ALLOW = 0x7FFF0000
_SUCCEED = 0x00050000  # SECCOMP_RET_ERRNO with error 0: the call is not made and returns 0
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_KIND_OF_FILE = 0o170000
_DEVICES = (0o020000, 0o060000)


def find_emulation(machine: str) -> Callable[[], None] | None:
    """What puts the filter on this process and all that it starts; None where the numbers of calls are not known."""
    if machine not in _FAKED:
        return None
    program = make_filter(machine)
    return lambda: libc.filter_calls(program)


def make_filter(machine: str) -> bytes:
    """The filter as struct sock_filter wants it: code, jump if true, jump if false, value."""
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _ALLOW),  # a program of another machine, whose numbers mean something else
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in _FAKED[machine]:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _SUCCEED)]
    for number, argument in _MAKE_NODE[machine]:
        lines += [
            (_EQUAL, 0, 6, number),
            (_LOAD, 0, 0, _ARGUMENTS + 8 * argument),
            (_AND, 0, 0, _KIND_OF_FILE),
            (_EQUAL, 1, 0, _DEVICES[0]),
            (_EQUAL, 0, 1, _DEVICES[1]),
            (_RETURN, 0, 0, _SUCCEED),
            (_RETURN, 0, 0, _ALLOW),  # a pipe or socket, which anybody may make
        ]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
