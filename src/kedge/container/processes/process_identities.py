# SPDX-License-Identifier: BSD-3-Clause
"""Who the processes of a step are, where the kernel knows one user only: user, group and groups of each, and the rules
by which a process may change them (credentials(7)).

A child is who its parent is. What the kernel does not tell is looked up: the parents of a process, and its session
where a parent has ended already.
"""

from __future__ import annotations

import errno
import os

from kedge.base.frozen import frozen
from kedge.system.call_notices import refuse

SAME = 0xFFFFFFFF  # -1: that number stays
_MOST_KNOWN = 4096
_TRIES = 20  # looks for a child, a millisecond apart


@frozen
class Identity:
    """Real, effective and saved user and group, and the supplementary groups."""

    users: tuple[int, int, int] = (0, 0, 0)
    groups: tuple[int, int, int] = (0, 0, 0)
    others: tuple[int, ...] = ()
    keeps: bool = False  # it was root, and asked to keep its capabilities until it becomes another program

    @property
    def uid(self) -> int:
        """Return the user whose rights the process has, and whose its new files are."""
        return self.users[1]

    @property
    def gid(self) -> int:
        """The group of its new files."""
        return self.groups[1]

    @property
    def is_root(self) -> bool:
        """Whether the process may do everything."""
        return self.users[1] == 0

    @property
    def may_change(self) -> bool:
        """Whether the process may become anybody."""
        return self.is_root or self.keeps

    def is_member(self, gid: int) -> bool:
        """Whether the process has the rights of a group."""
        return gid == self.groups[1] or gid in self.others

    def as_real(self) -> Identity:
        """Whom access(2) asks for: the user who started a program, and not the one whose rights it has."""
        return Identity((self.users[0],) * 3, (self.groups[0],) * 3, self.others)

    def start(self, uid: int | None = None, gid: int | None = None) -> Identity:
        """After execve(2); user and group are those of a program with setuid and setgid bits."""
        user = self.users[1] if uid is None else uid
        group = self.groups[1] if gid is None else gid
        return Identity((self.users[0], user, user), (self.groups[0], group, group), self.others)

    def change(self, call: str, numbers: tuple[int, ...]) -> Identity:
        """After set*uid(2) or set*gid(2); raises Refusal."""
        is_user = "uid" in call
        before = self.users if is_user else self.groups
        after = _CHANGES[call.replace("gid", "uid")](before, numbers, may_all=self.may_change)
        users, groups = (after, self.groups) if is_user else (self.users, after)
        return Identity(users, groups, self.others, self.keeps)


_Three = tuple[int, int, int]


def _set(before: _Three, numbers: tuple[int, ...], *, may_all: bool) -> _Three:
    wanted = numbers[0]
    if may_all:
        return (wanted, wanted, wanted)
    _require(wanted in (before[0], before[2]))
    return (before[0], wanted, before[2])


def _set_both(before: _Three, numbers: tuple[int, ...], *, may_all: bool) -> _Three:
    real, effective = numbers[:2]
    _require(may_all or real in (SAME, before[0], before[1]))
    _require(may_all or effective in (SAME, *before))
    now = (before[0] if real == SAME else real), (before[1] if effective == SAME else effective)
    is_saved = real != SAME or (effective not in (SAME, before[0]))
    return (*now, now[1] if is_saved else before[2])


def _set_all(before: _Three, numbers: tuple[int, ...], *, may_all: bool) -> _Three:
    _require(may_all or all(number in (SAME, *before) for number in numbers[:3]))
    real, effective, saved = (old if new == SAME else new for old, new in zip(before, numbers, strict=False))
    return (real, effective, saved)


_CHANGES = {"setuid": _set, "setreuid": _set_both, "setresuid": _set_all}


def _require(condition: bool) -> None:
    if not condition:
        raise refuse(errno.EPERM)


class _Process:
    """What /proc says of a process or thread; raises OSError."""

    __slots__ = ("number", "parent", "session", "start")

    def __init__(self, number: int) -> None:
        fields = _read(f"/proc/{number}/stat").rpartition(b")")[2].split()
        self.number = number
        self.parent, self.session, self.start = int(fields[1]), int(fields[3]), int(fields[19])


class ProcessIdentities:
    """Finds who a process is."""

    def __init__(self, first: Identity) -> None:
        self._first = first  # who the step's program is
        self._known: dict[int, tuple[int, Identity]] = {}  # by process: when it began, and who it is
        self._sessions: dict[int, Identity] = {}
        self._parents: dict[int, int] = {}  # processes that are about to have a child: how often it was looked for
        self.is_plain = first == Identity()  # nobody is anybody but root

    def find(self, process: int) -> Identity:
        """Return who a process is: as a rule who its parent was when it began."""
        if self.is_plain:
            return self._first
        try:
            return self._find(process)
        except (OSError, ValueError, IndexError):
            return self._first  # it is gone

    def _find(self, process: int) -> Identity:
        here = _Process(process)
        found = self._recall(here)
        if found is None:
            leader = int(read_status_field(process, b"Tgid"))
            here = here if leader == process else _Process(leader)
            found = self._recall(here) or self._inherit(here)
        if here.number == here.session:
            self._sessions[here.session] = found
        return found

    def _recall(self, process: _Process) -> Identity | None:
        known = self._known.get(process.number)
        return known[1] if known is not None and known[0] == process.start else None

    def _inherit(self, process: _Process) -> Identity:
        """Return who the nearest known parent is; who began its session where no parent is there any more."""
        found, each, below = None, process, []
        while found is None:
            below.append(each)
            if each.parent <= 1:
                found = self._sessions.get(process.session, self._first)
                break
            each = _Process(each.parent)
            found = self._recall(each)
        for child in below:
            self._keep(child, found)
        return found

    def note(self, process: int, identity: Identity) -> None:
        """Note that a process is somebody else from now on."""
        if self.is_plain and identity == self._first:
            return
        self.is_plain = False
        try:
            self._keep(_Process(int(read_status_field(process, b"Tgid"))), identity)
        except (OSError, ValueError, IndexError):
            return

    def _keep(self, process: _Process, identity: Identity) -> None:
        if len(self._known) > _MOST_KNOWN:
            self._known = {each: known for each, known in self._known.items() if os.path.exists(f"/proc/{each}")}
        self._known[process.number] = (process.start, identity)
        if process.number == process.session:
            self._sessions[process.session] = identity

    # -- children whose parents may end before anything is heard of them

    def expect_child(self, process: int) -> None:
        """A process that is not root is about to have a child."""
        self._parents[process] = 0

    @property
    def expects_children(self) -> bool:
        """Whether some have to be looked for."""
        return bool(self._parents)

    def look_for_children(self) -> None:
        """Know the new children of processes while they are there."""
        for process, tries in list(self._parents.items()):
            try:
                children = _read(f"/proc/{process}/task/{process}/children").split()
            except OSError:
                children, tries = [], _TRIES
            for child in children:
                self.find(int(child))
            self._parents[process] = tries + 1
            if children or tries >= _TRIES:
                del self._parents[process]


def read_status_field(process: int, name: bytes) -> bytes:
    """A field of /proc/PID/status; raises OSError or IndexError."""
    return _read(f"/proc/{process}/status").partition(b"\n" + name + b":")[2].split(None, 1)[0]


def read_umask(process: int) -> int:
    """The bits that it takes from the modes of what it makes; raises OSError."""
    return int(read_status_field(process, b"Umask"), 8)


def read_capabilities(process: int) -> int:
    """The effective capabilities of a process, as bits; raises OSError."""
    return int(read_status_field(process, b"CapEff"), 16)


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)
