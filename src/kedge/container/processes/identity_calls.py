# SPDX-License-Identifier: BSD-3-Clause
"""Answers calls by which programs of a step ask or change who they are, where the kernel knows one user only."""

from __future__ import annotations

import errno
import os
import stat
import struct

from kedge.container.processes.noted_files import EXECUTE, HERE, open_target
from kedge.container.processes.process_identities import Identity, ProcessIdentities
from kedge.system.call_notices import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.system.call_notices import CallNotice

    Answer = Callable[[CallNotice, Identity], int | None]

_MOST_GROUPS = 65536
_RESTART = 0x10000000  # SA_RESTART
_THREE = struct.Struct("=I")


class IdentityCalls:
    """The answers by name of the call: a value, or None where the kernel's own is right; a `Refusal` is one, too."""

    def __init__(self, identities: ProcessIdentities) -> None:
        self._identities = identities
        changes = ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid")
        self.answers: dict[str, Answer] = {
            **{name: self._make_change(name) for name in changes},
            "setfsuid": lambda _, identity: identity.uid,
            "setfsgid": lambda _, identity: identity.gid,
            "setgroups": self._set_groups,
            "getuid": lambda _, identity: identity.users[0],
            "geteuid": lambda _, identity: identity.users[1],
            "getgid": lambda _, identity: identity.groups[0],
            "getegid": lambda _, identity: identity.groups[1],
            "getresuid": lambda notice, identity: _write_three(notice, identity.users),
            "getresgid": lambda notice, identity: _write_three(notice, identity.groups),
            "getgroups": _get_groups,
            "capget": _get_capabilities,
            "kill": self._kill,
            "execve": lambda notice, identity: self._execute(notice, identity, HERE, 0),
            "execveat": lambda notice, identity: self._execute(notice, identity, notice.arguments[0], 1),
            **dict.fromkeys(("clone", "clone3", "fork", "vfork"), self._expect_child),
            "prctl": self._keep_capabilities,
            "rt_sigaction": _restart_after_children,
        }

    def _make_change(self, name: str) -> Answer:
        def change(notice: CallNotice, identity: Identity) -> int:
            numbers = tuple(number & 0xFFFFFFFF for number in notice.arguments)
            self._identities.note(notice.process, identity.change(name, numbers))
            return 0

        return change

    def _set_groups(self, notice: CallNotice, identity: Identity) -> int:
        count = notice.arguments[0] & 0xFFFFFFFF
        if not identity.may_change:
            raise refuse(errno.EPERM)
        if count > _MOST_GROUPS:
            raise refuse(errno.EINVAL)
        data = notice.read_memory(notice.arguments[1], 4 * count) if count else b""
        groups = struct.unpack(f"={count}I", data)
        self._identities.note(notice.process, Identity(identity.users, identity.groups, groups, identity.keeps))
        return 0

    def _expect_child(self, notice: CallNotice, identity: Identity) -> None:
        if identity != Identity():
            self._identities.expect_child(notice.process)

    def _keep_capabilities(self, notice: CallNotice, identity: Identity) -> None:
        """prctl(2) with PR_SET_KEEPCAPS: setpriv changes its groups after its user."""
        keeps = identity.may_change and bool(notice.arguments[1])
        self._identities.note(notice.process, Identity(identity.users, identity.groups, identity.others, keeps))

    def _kill(self, notice: CallNotice, identity: Identity) -> int | None:
        """Signals go to one's own processes; groups of processes are left to the kernel."""
        number = notice.arguments[0] & 0xFFFFFFFF
        if identity.is_root or not 1 <= number < 1 << 31:
            return None
        if not os.path.exists(f"/proc/{number}"):
            return None
        other = self._identities.find(number)
        if {identity.users[0], identity.users[1]} & {other.users[0], other.users[2]}:
            return None
        raise refuse(errno.EPERM)

    def _execute(self, notice: CallNotice, identity: Identity, folder: int, position: int) -> None:
        """A program with setuid bits gives its owner's rights to who starts it."""
        path = notice.read_path(position)
        file = open_target(notice, folder, path)
        try:
            if not file.is_directory and not file.lets(identity, EXECUTE):
                raise refuse()
            uid = file.uid if file.mode & stat.S_ISUID else None
            gid = file.gid if file.mode & stat.S_ISGID and file.mode & stat.S_IXGRP else None
        finally:
            file.close()
        started = identity.start(uid, gid)
        if started != identity:
            self._identities.note(notice.process, started)


def _restart_after_children(notice: CallNotice, _: Identity) -> None:
    """Let calls go on after a handler of SIGCHLD.

    A signal ends a call that waits for its answer here. Most handlers let it begin again (SA_RESTART); those of some
    shells do not, whose `test -e FILE` would fail because a child ended.
    """
    if notice.arguments[1]:
        handler, flags = struct.unpack("=QQ", notice.read_memory(notice.arguments[1], 16))
        if handler > 1 and not flags & _RESTART:  # 0 and 1: the default, none
            notice.write_memory(notice.arguments[1] + 8, struct.pack("=Q", flags | _RESTART))


def _write_three(notice: CallNotice, numbers: tuple[int, int, int]) -> int:
    for address, number in zip(notice.arguments, numbers, strict=False):
        notice.write_memory(address, _THREE.pack(number))
    return 0


def _get_groups(notice: CallNotice, identity: Identity) -> int:
    room, count = notice.arguments[0] & 0xFFFFFFFF, len(identity.others)
    if room == 0:
        return count
    if room < count:
        raise refuse(errno.EINVAL)
    notice.write_memory(notice.arguments[1], struct.pack(f"={count}I", *identity.others))
    return count


def _get_capabilities(notice: CallNotice, identity: Identity) -> int | None:
    """An ordinary user has none; those of root are what the kernel says."""
    version, _ = struct.unpack("=II", notice.read_memory(notice.arguments[0], 8))
    sizes = {0x19980330: 12, 0x20071026: 24, 0x20080522: 24}
    if identity.is_root or version not in sizes or not notice.arguments[1]:
        return None
    notice.write_memory(notice.arguments[1], bytes(sizes[version]))
    return 0
