# SPDX-License-Identifier: BSD-3-Clause
"""What an instance uses: counted over its processes, so that no control group is needed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from kedge.container.facts import read_memory
from kedge.container.processes.instance_records import Instance
from kedge.system.host.cgroups import find_least, read_hierarchies
from kedge.system.host.limits import MEMORY_FILES
from kedge.system.process_tree import Process, count_memory, list_processes

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class InstanceUsage:
    """One look at an instance."""

    when: float
    cpu: float  # seconds since the instance began, of processes that live and those they waited for
    memory: int  # bytes, with what processes share counted once
    limit: int  # bytes that it may use
    read: int  # bytes from disks, of living processes
    written: int
    processes: int

    def cpu_share(self, before: InstanceUsage) -> float:
        """How many processors were busy since an earlier look, in percent of one."""
        return 100 * max(0.0, self.cpu - before.cpu) / max(1e-3, self.when - before.when)


def measure(instance: Instance) -> InstanceUsage:
    """Look at all processes of an instance now."""
    family = _list_members(instance.pid)
    blocks = [_read_blocks(process.pid) for process in family]
    return InstanceUsage(
        when=time.monotonic(),
        cpu=sum(_read_seconds(process.pid) for process in family),
        memory=count_memory(family),
        limit=_find_limit(instance.pid),
        read=sum(block[0] for block in blocks),
        written=sum(block[1] for block in blocks),
        processes=len(family),
    )


def _list_members(first: int) -> list[Process]:
    """Return all processes in a process-id namespace: programs that entered later descend from who sent them."""
    space = _find_space(first)
    alive = [process for process in list_processes() if not process.is_dead]
    return [process for process in alive if space and _find_space(process.pid) == space]


def _find_space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""  # it ended meanwhile, or is another user's


def _read_seconds(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS  # own and waited-for, user and system
    except (OSError, ValueError):
        return 0.0  # it ended meanwhile


def _read_blocks(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
        return int(fields[b"read_bytes"]), int(fields[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0, 0  # the kernel does not tell others, as for programs of other users


def _find_limit(pid: int) -> int:
    """The least of what control groups allow the instance and what the host has."""
    least = find_least(read_hierarchies(process=str(pid)), MEMORY_FILES, "memory")
    return min(least[0], read_memory()) if least else read_memory()
