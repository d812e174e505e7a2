# SPDX-License-Identifier: BSD-3-Clause
"""Which rank of this host ended first, and how: for launchers that do not name it, or name one that they killed.

When a rank of MPICH ends without MPI_Abort, Hydra kills the others and reports one of all: often one of those. The
kernel tells when a process ends, also one that is not our child, and shows its status until its parent asks for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from kedge.base.frozen import frozen
from kedge.launch.follow_output import StartedRank
from kedge.system.child_group import ChildGroup

_TOGETHER = 2.0  # seconds within which a launcher kills the other ranks
_AFTER_NAME = 49  # the field `exit_code` of /proc/PID/stat, counted behind the name


@frozen
class EndedRank:
    """A rank that has ended."""

    rank: StartedRank
    when: float
    status: int | None  # as a shell shows it; None: unknown

    @property
    def is_killed(self) -> bool:
        """By SIGKILL, which is how a launcher ends the others."""
        return self.status == 128 + signal.SIGKILL

    @property
    def is_certain(self) -> bool:
        """Whether a rank failed by itself, and was not only the first of which we heard."""
        return bool(self.status) and not self.is_killed


class RankWatch:
    """Notes the ends of ranks while the group is waited for.

    By epoll, which tells them in the order in which they happened, also where this process is late.
    """

    def __init__(self, group: ChildGroup) -> None:
        self._group = group
        self._host = os.uname().nodename.partition(".")[0]
        self._epoll: select.epoll | None = None
        self._ranks: dict[int, StartedRank] = {}  # by their files
        self._ended: list[EndedRank] = []

    def add(self, rank: StartedRank) -> None:
        """Watch one, if it runs on this host; without pidfds (before Linux 5.3) nothing is known."""
        if rank.host.partition(".")[0] != self._host:
            return
        with contextlib.suppress(OSError, AttributeError):
            file = os.pidfd_open(rank.pid)
            self._ranks[file] = rank
            if self._epoll is None:
                self._epoll = select.epoll()
                self._group.watch_file(self._epoll.fileno(), select.POLLIN, self._note)
            self._epoll.register(file, select.EPOLLIN)

    def find_first(self, *, is_alone: bool) -> EndedRank | None:
        """The rank that failed first, if that can be told; `is_alone`: all ranks are on this host."""
        return find_culprit(self._ended, is_alone=is_alone)

    def close(self) -> None:
        """Watch no more."""
        if self._epoll is not None:
            self._note()
            self._group.forget_file(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        for file in self._ranks:
            os.close(file)
        self._ranks.clear()

    def _note(self) -> None:
        assert self._epoll is not None
        for file, _ in self._epoll.poll(0):
            rank = self._ranks.pop(file)
            self._ended.append(EndedRank(rank, time.monotonic(), _read_status(rank.pid)))
            self._epoll.unregister(file)
            os.close(file)


def find_culprit(ended: list[EndedRank], *, is_alone: bool) -> EndedRank | None:
    """Return of ranks in the order of their ends the first that failed, and was not killed with all others.

    Where none such is known, the first that ended shortly before or with those that were killed, if none ran elsewhere.
    """
    for each in ended:
        if each.is_certain:
            return each
    killed = next((each.when for each in ended if each.is_killed), None)
    if killed is None or not is_alone:
        return None
    return next(each for each in ended if each.status != 0 and each.when > killed - _TOGETHER)


def _read_status(pid: int) -> int | None:
    """How a process ended that nobody has waited for yet."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - the launcher is about to ask for it
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _AFTER_NAME or fields[0] not in (b"Z", b"X"):
        return None
    code = os.waitstatus_to_exitcode(int(fields[_AFTER_NAME]))
    return code if code >= 0 else 128 - code
