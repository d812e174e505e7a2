# SPDX-License-Identifier: BSD-3-Clause
"""Root emulation for --fakeroot where root is the only user there is: a seccomp filter that lets calls succeed unheard.

Package managers give files to users that do not exist here and make device nodes. The kernel would refuse; with the
filter the calls return success and do nothing. No library is put into the container and nothing is traced, so static
programs and old C libraries are served as well. What asks afterwards who owns a file still sees one owner.

A step of a build has a filter too where it has many users: a tree that is thrown away when the machine fails needs no
fsync, for which dpkg waits longer than for all its writing.
"""

from __future__ import annotations

import os

from kedge.container.processes.emulated_calls import (
    ATTRIBUTES,
    CAPSET,
    IDENTITY_CALLS,
    NODES,
    OWNER_CALLS,
    OWNERS,
    REFUSED_CALLS,
    SYNCS,
)
from kedge.container.seccomp import (
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
from kedge.system import libc
from kedge.system.libc import AT_EMPTY_PATH, PR_SET_KEEPCAPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kedge.container.seccomp import Line

_KIND_OF_FILE = 0o170000
_DEVICES = (0o020000, 0o060000)
_UNCHANGED = 0xFFFFFFFF  # -1: the user or group stays
_OPENING = {"open": 1, "openat": 2}  # which argument has the flags
_LOOKING = {"newfstatat": 3, "statx": 2}
_FIRST = {"prctl": PR_SET_KEEPCAPS, "rt_sigaction": 17}  # with this first argument only; 17: SIGCHLD
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class EmulatedCalls:
    """Which calls succeed unheard."""

    __slots__ = ("attributes", "devices", "identities", "notices", "owners", "syncs")

    def __init__(
        self, *, owners: bool = True, attributes: bool = False, syncs: bool = False, notices: bool = False
    ) -> None:
        self.identities = False  # with `notices`: those that ask and change who a process is, too
        self.devices = False  # with `notices`: those that make device nodes are left to `device_recorder`
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
    if calls.identities and not has_notices:
        lines += [line for number in REFUSED_CALLS[kind] for line in (equals(number, skip_unless=1), give(NOTIFY))]
    elif calls.identities:
        return [*lines, *_leave_identities(kind), *_fake(set(numbers) - {CAPSET[kind]}), give(ALLOW)]
    for number, name in OWNER_CALLS[kind].items() if calls.owners and calls.notices and has_notices else ():
        # dpkg gives every file that it has open to root: for a new one there is nothing to note
        lines += _leave_unless_root(number) if name == "fchown" else [equals(number, skip_unless=1), give(NOTIFY)]
    lines += _fake(numbers)
    leaves_devices = calls.devices and calls.notices and has_notices
    for number, argument in NODES[kind] if calls.owners or leaves_devices else ():
        lines += [
            equals(number, skip_unless=6),
            load(ARGUMENTS + 8 * argument),
            mask(_KIND_OF_FILE),
            equals(_DEVICES[0], skip_if=1),
            equals(_DEVICES[1], skip_unless=1),
            give(NOTIFY if leaves_devices else SUCCEED),
            give(ALLOW),  # a pipe or socket, which anybody may make
        ]
    lines.append(give(ALLOW))
    return lines


def _fake(numbers: Iterable[int]) -> list[Line]:
    """Let calls succeed unheard."""
    return [line for number in sorted(numbers) for line in (equals(number, skip_unless=1), give(SUCCEED))]


def _leave_identities(kind: str) -> list[Line]:
    """Leave what the supervisor of a step answers to it."""
    lines = []
    for number, name in IDENTITY_CALLS[kind].items():
        judgement = [give(NOTIFY)]
        if name in _OPENING:  # who opens a file for reading does not wait
            flags = load(ARGUMENTS + 8 * _OPENING[name])
            judgement = [flags, mask(_WRITES), equals(0, skip_if=1), give(NOTIFY), give(ALLOW)]
        elif name in _LOOKING:  # nor who looks at what it has open: every program does, at each of its libraries
            flags = load(ARGUMENTS + 8 * _LOOKING[name])
            judgement = [flags, mask(AT_EMPTY_PATH), equals(0, skip_unless=1), give(NOTIFY), give(ALLOW)]
        elif name in _FIRST:
            judgement = [load(ARGUMENTS), equals(_FIRST[name], skip_unless=1), give(NOTIFY), give(ALLOW)]
        lines += [equals(number, skip_unless=len(judgement)), *judgement]
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
