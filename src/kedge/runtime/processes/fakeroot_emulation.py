# SPDX-License-Identifier: BSD-3-Clause
"""Root emulation for --fakeroot where root is the only user there is: a seccomp filter that lets calls succeed unheard.

Package managers give files to users that do not exist here and make device nodes. The kernel would refuse; with the
filter the calls return success and do nothing. No library is put into the container and nothing is traced, so static
programs and old C libraries are served as well. What asks afterwards who owns a file still sees one owner.

The numbers are those of arch/*/include/generated/uapi/asm/unistd*.h; the list follows what dpkg, rpm and tar call.
"""

from __future__ import annotations

from kedge.posix import libc
from kedge.runtime.processes.seccomp import (
    ALLOW,
    ARCHITECTURE,
    ARGUMENTS,
    AUDIT_ARCHITECTURES,
    NUMBER,
    SUCCEED,
    assemble,
    equals,
    give,
    load,
    mask,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# chown fchown lchown fchownat; setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid; capset
_FAKED = {
    "x86_64": (92, 93, 94, 260, 105, 106, 113, 114, 117, 119, 116, 122, 123, 126),
    "aarch64": (55, 54, 146, 144, 145, 143, 147, 149, 159, 151, 152, 91),
}
# number of the call, and which argument is the mode
_MAKE_NODE = {"x86_64": ((133, 1), (259, 2)), "aarch64": ((33, 2),)}

_KIND_OF_FILE = 0o170000
_DEVICES = (0o020000, 0o060000)


def prepare_emulation(machine: str) -> Callable[[], None] | None:
    """What puts the filter on this process and all that it starts; None where the numbers of calls are not known."""
    if machine not in _FAKED:
        return None
    program = make_filter(machine)
    return lambda: libc.filter_calls(program)


def make_filter(machine: str) -> bytes:
    """The filter itself."""
    lines = [
        load(ARCHITECTURE),
        equals(AUDIT_ARCHITECTURES[machine], skip_if=1),
        give(ALLOW),  # a program of another machine, whose numbers mean something else
        load(NUMBER),
    ]
    for number in _FAKED[machine]:
        lines += [equals(number, skip_unless=1), give(SUCCEED)]
    for number, argument in _MAKE_NODE[machine]:
        lines += [
            equals(number, skip_unless=6),
            load(ARGUMENTS + 8 * argument),
            mask(_KIND_OF_FILE),
            equals(_DEVICES[0], skip_if=1),
            equals(_DEVICES[1], skip_unless=1),
            give(SUCCEED),
            give(ALLOW),  # a pipe or socket, which anybody may make
        ]
    lines.append(give(ALLOW))
    return assemble(lines)
