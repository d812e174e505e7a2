# SPDX-License-Identifier: BSD-3-Clause
"""Root emulation for --fakeroot where root is the only user there is: a seccomp filter that lets calls succeed unheard.

Package managers give files to users that do not exist here and make device nodes. The kernel would refuse; with the
filter the calls return success and do nothing. No library is put into the container and nothing is traced, so static
programs and old C libraries are served as well. What asks afterwards who owns a file still sees one owner.

A step of a build has a filter too where it has many users: a tree that is thrown away when the machine fails needs no
fsync, for which dpkg waits longer than for all its writing.
"""

from __future__ import annotations

from kedge.posix import libc
from kedge.runtime.processes.emulated_calls import ATTRIBUTES, NODES, OWNER_CALLS, OWNERS, SYNCS
from kedge.runtime.processes.seccomp import (
    ALLOW,
    ARCHITECTURE,
    ARGUMENTS,
    AUDIT_ARCHITECTURES,
    NOTIFY,
    NUMBER,
    SECOND_KINDS,
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

    from kedge.runtime.processes.seccomp import Line

_KIND_OF_FILE = 0o170000
_DEVICES = (0o020000, 0o060000)
_UNCHANGED = 0xFFFFFFFF  # -1: the user or group stays


class EmulatedCalls:
    """Which calls succeed unheard."""

    __slots__ = ("attributes", "notices", "owners", "syncs")

    def __init__(
        self, *, owners: bool = True, attributes: bool = False, syncs: bool = False, notices: bool = False
    ) -> None:
        self.owners = owners  # those that give files, users and device nodes
        self.notices = notices  # those that give files are left to `owner_recorder`
        self.attributes = attributes  # those that set extended attributes
        self.syncs = syncs  # those that wait for the disk


def prepare_emulation(machine: str, calls: EmulatedCalls | None = None) -> Callable[[], None] | None:
    """What puts the filter on this process and all that it starts; None where the numbers of calls are not known."""
    if machine not in OWNERS:
        return None
    program = make_filter(machine, calls)
    return lambda: libc.filter_calls(program)


def make_filter(machine: str, calls: EmulatedCalls | None = None) -> bytes:
    """The filter itself."""
    lines = [load(ARCHITECTURE)]
    for kind in (machine, *SECOND_KINDS.get(machine, ())):
        rules = _list_rules(kind, calls or EmulatedCalls(), has_notices=kind == machine)
        lines += [equals(AUDIT_ARCHITECTURES[kind], skip_unless=len(rules)), *rules]
    lines.append(give(ALLOW))  # a program of another kind, whose numbers mean something else
    return assemble(lines)


def _list_rules(kind: str, calls: EmulatedCalls, *, has_notices: bool) -> list[Line]:
    numbers = [*(OWNERS[kind] if calls.owners else ()), *(ATTRIBUTES[kind] if calls.attributes else ())]
    numbers += SYNCS[kind] if calls.syncs else ()
    lines = [load(NUMBER)]
    for number, name in OWNER_CALLS[kind].items() if calls.notices and has_notices else ():
        # dpkg gives every file that it has open to root: for a new one there is nothing to note
        lines += _leave_unless_root(number) if name == "fchown" else [equals(number, skip_unless=1), give(NOTIFY)]
    for number in numbers:
        lines += [equals(number, skip_unless=1), give(SUCCEED)]
    for number, argument in NODES[kind] if calls.owners else ():
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
    return lines


def _leave_unless_root(number: int) -> list[Line]:
    """Leave a call to the recorder unless its second and third arguments, user and group, are root's or stay."""
    return [
        equals(number, skip_unless=8),
        load(ARGUMENTS + 8),
        equals(0, skip_if=1),
        equals(_UNCHANGED, skip_unless=3),
        load(ARGUMENTS + 16),
        equals(0, skip_if=2),
        equals(_UNCHANGED, skip_if=1),
        give(NOTIFY),
        give(SUCCEED),
    ]
