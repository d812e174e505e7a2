# SPDX-License-Identifier: BSD-3-Clause
"""Who a process becomes by set*uid and set*gid, what it may do then, and the maps of ids: the kernel is the judge."""

from __future__ import annotations

import ctypes
import errno
import itertools
import json
import os
import random
import tempfile
from pathlib import Path

import pytest

from kedge.base.owner_records import decode_device, decode_mode, decode_owner, encode_device, encode_mode
from kedge.container.processes.emulated_calls import CAPSET, IDENTITY_CALLS
from kedge.container.processes.noted_files import EXECUTE, READ, WRITE, NotedFile
from kedge.container.processes.process_identities import SAME, Identity, ProcessIdentities
from kedge.container.processes.subordinate_ids import plan_own_maps
from kedge.container.seccomp import AUDIT_ARCHITECTURES
from kedge.system.call_notices import Refusal
from kedge.system.views import TableView
from tests.builders.matrices import EVERY
from tests.builders.rows import with_rows
from tests.requirements import require_root

CALLS = {"setuid": 1, "setgid": 1, "setreuid": 2, "setregid": 2, "setresuid": 3, "setresgid": 3}


def in_child(work) -> object:
    """What a function returns in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said)


def make_calls(chance: random.Random) -> list[tuple[str, list[int]]]:
    calls = []
    for _ in range(8):
        name = chance.choice(list(CALLS))
        numbers = [0, 1, 2, 3] + ([-1] if CALLS[name] > 1 else [])
        calls.append((name, [chance.choice(numbers) for _ in range(CALLS[name])]))
    return calls


def ask_kernel(calls: list[tuple[str, list[int]]]) -> list[object]:
    said: list[object] = []
    os.setgroups([])
    for name, numbers in calls:
        try:
            getattr(os, name)(*numbers)
            number = 0
        except OSError as problem:
            number = problem.errno or 0
        said.append([number, list(os.getresuid()), list(os.getresgid())])
    return said


def ask_emulation(calls: list[tuple[str, list[int]]]) -> list[object]:
    said: list[object] = []
    identity = Identity()
    for name, numbers in calls:
        try:
            identity = identity.change(name, tuple(number & SAME for number in numbers))
            number = 0
        except Refusal as refusal:
            number = refusal.errno or 0
        said.append([number, list(identity.users), list(identity.groups)])
    return said


@pytest.mark.root
@EVERY
def test_changes_of_users_follow_the_kernels_rules(is_every: bool) -> None:
    require_root()
    chance, refused, rounds = random.Random(28), 0, 200 if is_every else 50
    for _ in range(rounds):
        calls = make_calls(chance)
        expected = in_child(lambda calls=calls: ask_kernel(calls))
        assert ask_emulation(calls) == expected, calls
        refused += sum(line[0] == errno.EPERM for line in expected)
    assert refused > rounds / 2


@pytest.mark.root
def test_files_let_whom_the_kernel_lets() -> None:
    require_root()
    with tempfile.TemporaryDirectory(prefix="kedge-identities-") as folder:  # pytest's are closed to other users
        Path(folder).chmod(0o755)
        path, ways = Path(folder) / "file", (READ, WRITE, EXECUTE)
        cases = itertools.product((0o640, 0o027, 0o701, 0o000), (1, 2), (5, 6), (1, 2), (5, 7))
        for mode, owner, group, uid, gid in cases:
            path.write_text("x")
            os.chown(path, owner, group)
            path.chmod(mode)

            def ask(uid: int = uid, gid: int = gid) -> list[bool]:
                os.setgroups([6])
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
                return [os.access(path, wanted) for wanted in ways]

            file = NotedFile(os.open(path, os.O_PATH))
            file.uid, file.gid = owner, group
            found = [file.lets(Identity((uid,) * 3, (gid,) * 3, (6,)), wanted) for wanted in ways]
            file.close()
            assert found == in_child(ask), (oct(mode), owner, group, uid, gid)


def test_a_program_with_a_setuid_bit_gives_its_owner() -> None:
    alice = Identity((7, 7, 7), (8, 8, 8), (9,))
    assert (alice.start(0), alice.start(0).as_real().uid) == (Identity((7, 0, 0), (8, 8, 8), (9,)), 7)
    assert alice.start() == alice
    kept = Identity(keeps=True).change("setuid", (7,))
    assert kept.may_change
    assert not kept.is_root
    assert not kept.start().may_change


def test_children_are_who_their_parents_are() -> None:
    people = ProcessIdentities(Identity())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert people.is_plain
        assert people.find(child) == Identity()
        alice = Identity((7, 7, 7))
        people.note(os.getpid(), alice)
        assert not people.is_plain
        assert people.find(child) == alice
        people.note(child, Identity((5, 5, 5)))
        assert (people.find(child).uid, people.find(os.getpid()).uid, people.find(os.getppid()).uid) == (5, 7, 0)
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_numbers_of_calls_are_those_of_libseccomp() -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("there is no libseccomp here")
    for machine, names in IDENTITY_CALLS.items():
        kind = ctypes.c_uint(AUDIT_ARCHITECTURES[machine])
        for number, name in {**names, CAPSET[machine]: "capset"}.items():
            known = library.seccomp_syscall_resolve_name_arch(kind, name.encode())
            assert known == number or known < 0, (machine, name)  # below 0: that machine, or that library, has none


def test_notes_of_files_are_read_back() -> None:
    assert decode_device(encode_device(0o020666, os.makedev(1, 3))) == (0o020000, os.makedev(1, 3))
    assert decode_device(encode_device(0o060600, os.makedev(259, 70000))) == (0o060000, os.makedev(259, 70000))
    for value in (b"", b"c", b"x 1:3", b"c 1", b"c -1:3", b"c 99999:1", b"c 1:3 and more than that"):
        assert decode_device(value) is None
    assert decode_mode(encode_mode(0o4755, 0o755), 0o755) == 0o4755
    for value in (b"", b"4755", b"4755 700", b"9 755", b"47555555 755"):
        assert decode_mode(value, 0o755) is None
    assert decode_owner(b"1:x") is None


def plan(table: str) -> list[tuple[str, bytes]]:
    view = TableView({"/proc/self/uid_map": table.encode(), "/proc/self/gid_map": table.encode()})
    return plan_own_maps(view, 7)


@with_rows(
    ("         0          0 4294967295\n", b"0 0 1\n1 1 4294967294\n"),
    ("0 100000 65536\n", b"0 0 1\n1 1 65535\n"),
    ("0 1000 1\n1 100000 65536\n", b"0 0 1\n1 1 65536\n"),
)
def test_ids_of_root_are_mapped_to_themselves(table: str, expected: bytes) -> None:
    assert plan(table) == [("/proc/7/uid_map", expected), ("/proc/7/gid_map", expected)]


def test_ids_that_are_not_mapped() -> None:
    assert plan("0 0 4294967295\n")[0][1].split() != [b"0", b"0", b"4294967295"]
    assert plan("0 1000 1\n") == []
    assert plan_own_maps(TableView({}), 7) == []
