# SPDX-License-Identifier: BSD-3-Clause
"""What this process may use: processors, memory, processes. The node's own size says nothing on a shared node.

Everything is read from files below `root`, which tests replace by a tree of their own.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.system.host.cgroups import Hierarchy, find_least, read_hierarchies

MEMORY_FILES = {2: ("memory.max", "memory.high"), 1: ("memory.limit_in_bytes",)}
_MEBIBYTE = 1 << 20
_UNLIMITED_MEMORY = 1 << 60  # version 1 says "no limit" with a number near 2**63
_MAXIMUM_THREADS = 32  # one pull cannot feed more, and a shared node has other users
_SPARE_PROCESSES = 8  # for downloads, the pulse of leases, and the user's shell
_MEMORY_PER_THREAD = 24 * _MEBIBYTE
_AHEAD_PER_THREAD = 64 * _MEBIBYTE
_MANY_THREADS = 6  # from here on layers have processes of their own (image/layers/layers_ahead), which fill it sooner
_MOST_AHEAD = 2048 * _MEBIBYTE
_ADDRESS_SPACE_PER_THREAD = 144 * _MEBIBYTE  # a stack of 8 MiB and an arena of malloc, which reserves 128 MiB


@frozen
class Limits:
    """What may be used, and what says so; None means that nothing limits it."""

    cpus: int
    memory: int | None
    processes: int | None  # how many more may be started
    address_space: int | None = None
    cpus_from: str = ""
    memory_from: str = ""
    processes_from: str = ""


def read_limits(root: Path = Path("/"), uid: int | None = None) -> Limits:
    """Read all limits of this process; a few milliseconds."""
    hierarchies = read_hierarchies(root)
    own = _read_own_limits(root)
    cpus, cpus_from = _find_cpus(root, hierarchies)
    memory, memory_from = _find_memory(root, hierarchies, own.get("address space"))
    processes, processes_from = _find_processes(
        root, hierarchies, own.get("processes"), os.getuid() if uid is None else uid
    )
    return Limits(
        cpus=cpus,
        memory=memory,
        processes=processes,
        address_space=own.get("address space"),
        cpus_from=cpus_from,
        memory_from=memory_from,
        processes_from=processes_from,
    )


def choose_threads(limits: Limits | None = None, wanted: int | None = None) -> int:
    """How many threads to compress with: one per processor we may use, or as many as asked for, if they can be had."""
    limits = read_limits() if limits is None else limits
    threads = wanted if wanted is not None else min(limits.cpus, _MAXIMUM_THREADS)
    if limits.processes is not None:
        threads = min(threads, max(1, limits.processes - _SPARE_PROCESSES) if limits.processes > 16 else 1)
    if limits.memory is not None:
        threads = min(threads, limits.memory // 2 // _MEMORY_PER_THREAD)
    if limits.address_space is not None:
        threads = min(threads, (limits.address_space - 512 * _MEBIBYTE) // _ADDRESS_SPACE_PER_THREAD)
    return max(1, threads)


def choose_ahead(limits: Limits, threads: int) -> int:
    """How many bytes of layers may wait in memory, inflated: more where threads could fill and empty it.

    With one thread nothing is gained. Two keep both processors busy as it is: they need enough for the next layer's
    beginning. Reading ahead takes threads of its own, at most twice as many again: without room for them it is left.
    """
    has_processes = limits.processes is None or limits.processes >= 3 * threads + _SPARE_PROCESSES
    addresses = 512 * _MEBIBYTE + 3 * threads * _ADDRESS_SPACE_PER_THREAD
    has_addresses = limits.address_space is None or limits.address_space >= addresses
    if threads < 2 or not has_processes or not has_addresses:
        return 0
    each = _AHEAD_PER_THREAD if threads < _MANY_THREADS else 2 * _AHEAD_PER_THREAD
    wanted = min(each * threads, _MOST_AHEAD) if threads > 2 else _AHEAD_PER_THREAD // 2
    allowed = [limit // 8 for limit in (limits.memory, limits.address_space) if limit is not None]
    return min([wanted, *allowed])


def _find_cpus(root: Path, hierarchies: list[Hierarchy]) -> tuple[int, str]:
    cpus, source = _count_affinity(root), "affinity"
    for hierarchy in hierarchies:
        if hierarchy.version == 2:
            quotas = [(path, text.split()) for path, text in hierarchy.read_values("cpu.max")]
        elif "cpu" in hierarchy.controllers:
            periods = dict((path.parent, text) for path, text in hierarchy.read_values("cpu.cfs_period_us"))
            texts = hierarchy.read_values("cpu.cfs_quota_us")
            quotas = [(path, [text, periods.get(path.parent, "")]) for path, text in texts]
        else:
            continue
        for path, words in quotas:
            share = _divide(words)
            if share is not None and share < cpus:
                cpus, source = share, str(path)
    return max(1, cpus), source


def _divide(words: list[str]) -> int | None:
    """Quota and period to processors, rounded up; None for `max`, -1 and anything that is no pair of numbers."""
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return max(1, math.ceil(int(words[0]) / int(words[1])))


def _count_affinity(root: Path) -> int:
    """Processors in the affinity mask; the kernel keeps it within the cpuset of the group."""
    text = _find_field(root / "proc/self/status", "Cpus_allowed_list") or ""
    count = 0
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        if low.isdecimal() and (not high or high.isdecimal()):
            count += max(0, int(high or low) - int(low) + 1)
    return count or len(os.sched_getaffinity(0))


def _find_memory(root: Path, hierarchies: list[Hierarchy], address_space: int | None) -> tuple[int | None, str]:
    candidates: list[tuple[int, str]] = []
    group = find_least(hierarchies, MEMORY_FILES, "memory")
    if group is not None and group[0] < _UNLIMITED_MEMORY:
        candidates.append((group[0], str(group[1])))
    if address_space is not None:
        candidates.append((address_space, "RLIMIT_AS (ulimit -v)"))
    physical = (_find_field(root / "proc/meminfo", "MemTotal") or "").split()
    if physical and physical[0].isdecimal():
        candidates.append((int(physical[0]) << 10, "the memory of this host"))
    return min(candidates) if candidates else (None, "")


def _find_processes(
    root: Path, hierarchies: list[Hierarchy], soft_limit: int | None, uid: int
) -> tuple[int | None, str]:
    candidates: list[tuple[int, str]] = []
    for hierarchy in hierarchies:
        if hierarchy.version == 1 and "pids" not in hierarchy.controllers:
            continue
        current = dict((path.parent, text) for path, text in hierarchy.read_values("pids.current"))
        for path, text in hierarchy.read_values("pids.max"):
            if text.isdecimal():
                used = current.get(path.parent, "0")
                candidates.append((max(0, int(text) - int(used if used.isdecimal() else 0)), str(path)))
    if soft_limit is not None and uid != 0:  # the kernel does not hold root to RLIMIT_NPROC
        left = soft_limit - count_threads(root, uid, enough_below=soft_limit - 1024)
        candidates.append((max(0, left), "RLIMIT_NPROC (ulimit -u)"))
    return min(candidates) if candidates else (None, "")


def count_threads(root: Path, uid: int, enough_below: int) -> int:
    """Threads of this user on the machine; if all threads of everybody are fewer than `enough_below`, their number."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        everybody = int((root / "proc/loadavg").read_text().split()[3].split("/")[1])
        if everybody < enough_below:
            return everybody  # saves the walk over thousands of processes on a large node
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(root / "proc"):
            if entry.name.isdecimal():
                total += _count_process(Path(entry.path) / "status", uid)
    return total


def _count_process(status: Path, uid: int) -> int:
    try:
        text = status.read_text(errors="replace")
    except OSError:
        return 0
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    threads = fields.get("Threads", "1").strip()
    owner = fields.get("Uid", "").split()
    return int(threads) if owner and owner[0] == str(uid) and threads.isdecimal() else 0


def _read_own_limits(root: Path) -> dict[str, int]:
    """The soft limits of /proc/self/limits that are set: `Max processes   4096   4096   processes`."""
    wanted = {"Max processes": "processes", "Max address space": "address space"}
    limits: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/limits").read_text(errors="replace").splitlines():
            words = line[26:].split()
            name = wanted.get(line[:26].strip())
            if name and words and words[0].isdecimal():
                limits[name] = int(words[0])
    return limits


def _find_field(path: Path, name: str) -> str | None:
    """The text after `name:` in a file of such lines."""
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            key, colon, value = line.partition(":")
            if colon and key == name:
                return value.strip()
    return None
