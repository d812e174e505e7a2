# SPDX-License-Identifier: BSD-3-Clause
"""The filters of system calls, run through a small interpreter of the kernel's filter language."""

from __future__ import annotations

import errno
import os
import struct

from kedge.container.processes.emulated_calls import ATTRIBUTES, NODES, OWNERS, SYNCS
from kedge.container.processes.fakeroot_emulation import EmulatedCalls, make_filter
from kedge.container.processes.fakeroot_namespaces import repeat_map
from kedge.container.seccomp import AUDIT_ARCHITECTURES, SECOND_KINDS, make_containing_filter
from tests.builders.rows import each_row, with_rows

NOTICE = 0x7FC00000
ALLOWED = 0x7FFF0000
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401


def judge(program: bytes, architecture: int, number: int, *arguments: int, big: bool = False) -> int:
    """What the kernel would do; struct seccomp_data: number, architecture, instruction pointer, six arguments."""
    order = ">" if big else "<"
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack(f"{order}2I7Q", number, architecture, 0, *words)
    lines = list(struct.iter_unpack("=HBBI", program))
    place, held = 0, 0
    while True:
        code, if_true, if_false, value = lines[place]
        place += 1
        if code == 0x20:
            held = struct.unpack_from(f"{order}I", data, value)[0]
        elif code == 0x54:
            held &= value
        elif code == 0x15:
            place += if_true if held == value else if_false
        elif code == 0x35:
            place += if_true if held >= value else if_false
        else:
            assert code == 0x06
            return int(value)


# the machine, the kind of program, ioctl, keyctl, and a call that anybody makes (read)
KINDS = [
    *(("x86_64", "x86_64", 16, 250, 0), ("x86_64", "i386", 54, 288, 3), ("aarch64", "aarch64", 29, 219, 63)),
    *(("aarch64", "arm", 54, 311, 3), ("ppc64le", "ppc64le", 54, 271, 3), ("riscv64", "riscv64", 29, 219, 63)),
    ("s390x", "s390x", 54, 280, 3),
]


@each_row(("machine", "kind", "ioctl", "keyctl", "read"), KINDS)
def test_contained_programs_do_not_type_nor_reach_keys(machine, kind, ioctl, keyctl, read) -> None:
    program, architecture, big = make_containing_filter(machine), AUDIT_ARCHITECTURES[kind], machine == "s390x"
    for request in (TIOCSTI, TIOCLINUX, TIOCSTI | 0xFFFFFFFF00000000):  # the kernel drops the upper half
        assert judge(program, architecture, ioctl, 0, request, big=big) == 0x00050000 | errno.EPERM
    assert judge(program, architecture, ioctl, 0, TCGETS, big=big) == ALLOWED
    for number in (keyctl - 2, keyctl - 1, keyctl):
        assert judge(program, architecture, number, big=big) == 0x00050000 | errno.ENOSYS
    assert judge(program, architecture, read, big=big) == ALLOWED


def test_kinds_of_programs_that_cannot_be_judged_make_no_calls() -> None:
    program = make_containing_filter("x86_64")
    assert judge(program, AUDIT_ARCHITECTURES["x86_64"], 0x40000000 + 514, 0, TIOCSTI) == 0x00050000 | errno.ENOSYS
    assert judge(program, 0x12345678, 0) == 0x00050000 | errno.ENOSYS
    assert make_containing_filter("sparc") == b""


@with_rows(
    *(("x86_64", "x86_64", 92, (133, 1)), ("x86_64", "i386", 212, (14, 1)), ("aarch64", "aarch64", 55, (33, 2))),
    *(("aarch64", "arm", 198, (324, 2)), ("ppc64le", "ppc64le", 181, (288, 2))),
    ("riscv64", "riscv64", 54, (33, 2)),
)
def test_emulation_lets_calls_of_root_succeed(machine: str, kind: str, chown: int, mknod: tuple[int, int]) -> None:
    program, architecture = make_filter(machine), AUDIT_ARCHITECTURES[kind]
    assert judge(program, architecture, chown) == 0x00050000
    number, argument = mknod
    for mode, verdict in ((0o020600, 0x00050000), (0o060600, 0x00050000), (0o010600, ALLOWED)):
        arguments = [0] * argument + [mode]
        assert judge(program, architecture, number, *arguments) == verdict
    assert judge(program, 0x12345678, chown) == ALLOWED


@with_rows(
    *(("x86_64", "x86_64", 92, 74, 188), ("x86_64", "i386", 182, 118, 226), ("aarch64", "aarch64", 54, 82, 5)),
    ("ppc64le", "ppc64le", 95, 118, 209),
)
def test_emulation_of_a_step_has_the_calls_that_it_needs(machine, kind, chown, fsync, setxattr) -> None:
    architecture = AUDIT_ARCHITECTURES[kind]
    for calls, faked in (
        (EmulatedCalls(), {chown}),
        (EmulatedCalls(owners=False, syncs=True), {fsync}),
        (EmulatedCalls(attributes=True, syncs=True), {chown, fsync, setxattr}),
    ):
        program = make_filter(machine, calls)
        for number in (chown, fsync, setxattr):
            assert judge(program, architecture, number) == (0x00050000 if number in faked else ALLOWED)


@each_row(("machine", "fchown", "fchownat"), [("x86_64", 93, 260), ("aarch64", 55, 54)])
def test_emulation_of_a_step_leaves_changes_of_owners_to_the_recorder(machine: str, fchown: int, fchownat: int) -> None:
    program = make_filter(machine, EmulatedCalls(notices=True))
    architecture, nobody = AUDIT_ARCHITECTURES[machine], 0xFFFFFFFF
    for user, group, verdict in (
        *((0, 0, 0x00050000), (nobody, 0, 0x00050000), (0, nobody, 0x00050000), (nobody, nobody, 0x00050000)),
        *((7, 0, 0x7FC00000), (0, 7, 0x7FC00000), (7, nobody, 0x7FC00000), (nobody, 7, 0x7FC00000)),
    ):
        assert judge(program, architecture, fchown, 3, user, group) == verdict
        assert judge(program, architecture, fchownat, 3, 0, user, group) == 0x7FC00000
    other = {"x86_64": ("i386", 207), "aarch64": ("arm", 207)}[machine]
    assert judge(program, AUDIT_ARCHITECTURES[other[0]], other[1], 3, 7, 7) == 0x00050000


@with_rows(("x86_64", 257, 102, 157, 126), ("aarch64", 56, 174, 167, 91), ("ppc64le", 286, 24, 171, 184))
def test_emulation_of_a_step_leaves_what_asks_for_users_to_the_supervisor(
    machine: str, openat: int, getuid: int, prctl: int, capset: int
) -> None:
    calls = EmulatedCalls(notices=True)
    calls.identities = True
    program, architecture = make_filter(machine, calls), AUDIT_ARCHITECTURES[machine]
    for flags, verdict in ((os.O_RDONLY, ALLOWED), (os.O_WRONLY, NOTICE), (os.O_RDWR, NOTICE), (os.O_CREAT, NOTICE)):
        assert judge(program, architecture, openat, 3, 0, flags) == verdict
    for option, verdict in ((8, NOTICE), (38, ALLOWED)):
        assert judge(program, architecture, prctl, option) == verdict
    assert judge(program, architecture, getuid) == NOTICE
    assert judge(program, architecture, capset) == ALLOWED  # root of a namespace has capabilities to drop
    for kind in SECOND_KINDS.get(machine, ()):
        for number in (23, 213, 164, 210):  # 32-bit programs become nobody else, and are told so
            assert judge(program, AUDIT_ARCHITECTURES[kind], number) == NOTICE


def test_emulation_knows_every_kind_of_program_and_everybody_as_himself() -> None:
    for machine in OWNERS:
        for kind in (machine, *SECOND_KINDS.get(machine, ())):
            for table in (OWNERS, NODES, ATTRIBUTES, SYNCS):
                assert table[kind]
    assert repeat_map("         0       1000          1\n") == "0 0 1\n"
    assert repeat_map("0 1000 1\n1 100000 65536\n") == "0 0 1\n1 1 65536\n"
