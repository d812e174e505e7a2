# SPDX-License-Identifier: BSD-3-Clause
"""Limits of processors, memory and processes, read from trees that look like other machines. Needs nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.system.host.limits import Limits, choose_ahead, choose_threads, count_threads, read_limits
from tests.builders.host_tree import write_host, write_tree
from tests.builders.rows import each_row

MEBIBYTE = 1 << 20
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
SPLIT = "".join(
    f"{30 + number} 23 0:{26 + number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("cpu,cpuacct", "memory", "pids"))
)


def test_limits_without_any_are_the_machine(tmp_path: Path) -> None:
    limits = read_limits(write_host(tmp_path), uid=1000)
    assert limits == Limits(16, 64 << 30, None, None, "affinity", "the memory of this host", "")


def test_limits_of_this_machine_can_be_read() -> None:
    limits = read_limits()
    assert limits.cpus == len(os.sched_getaffinity(0)) or limits.cpus_from != "affinity"
    assert limits.memory > MEBIBYTE


@pytest.mark.parametrize(("text", "count"), [("0", 1), ("0-3", 4), ("0-1,8-9,15", 5), ("3,5", 2)])
def test_limits_affinity_is_counted(tmp_path: Path, text: str, count: int) -> None:
    assert read_limits(write_host(tmp_path, cpus=text)).cpus == count


def test_limits_version_2_takes_the_tightest_ancestor(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user.slice"
    root = write_host(
        tmp_path,
        groups="0::/user.slice/user-1000.slice/session-3.scope\n",
        mounts=UNIFIED,
        files={
            f"{group}/cpu.max": "max 100000\n",
            f"{group}/memory.max": "max\n",
            f"{group}/user-1000.slice/cpu.max": "250000 100000\n",
            f"{group}/user-1000.slice/memory.max": "2147483648\n",
            f"{group}/user-1000.slice/memory.high": "1073741824\n",
            f"{group}/user-1000.slice/pids.max": "100\n",
            f"{group}/user-1000.slice/pids.current": "40\n",
            f"{group}/user-1000.slice/session-3.scope/cpu.max": "800000 100000\n",
            f"{group}/user-1000.slice/session-3.scope/memory.max": "4294967296\n",
            f"{group}/user-1000.slice/session-3.scope/pids.max": "max\n",
        },
    )
    limits = read_limits(root)
    assert (limits.cpus, limits.memory, limits.processes) == (3, 1 << 30, 60)
    assert limits.cpus_from.endswith("user-1000.slice/cpu.max")
    assert limits.memory_from.endswith("user-1000.slice/memory.high")
    assert limits.processes_from.endswith("user-1000.slice/pids.max")


def test_limits_version_1_reads_each_controller_in_its_own_tree(tmp_path: Path) -> None:
    groups = "4:memory:/slurm/uid_1000/job_7\n3:cpu,cpuacct:/slurm/uid_1000/job_7\n2:pids:/user\n1:name=systemd:/x\n"
    base = "sys/fs/cgroup"
    root = write_host(
        tmp_path,
        groups=groups,
        mounts=SPLIT,
        files={
            f"{base}/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{base}/memory/slurm/uid_1000/job_7/memory.limit_in_bytes": "536870912\n",
            f"{base}/cpu,cpuacct/slurm/uid_1000/cpu.cfs_quota_us": "-1\n",
            f"{base}/cpu,cpuacct/slurm/uid_1000/cpu.cfs_period_us": "100000\n",
            f"{base}/cpu,cpuacct/slurm/uid_1000/job_7/cpu.cfs_quota_us": "150000\n",
            f"{base}/cpu,cpuacct/slurm/uid_1000/job_7/cpu.cfs_period_us": "50000\n",
            f"{base}/pids/user/pids.max": "512\n",
            f"{base}/pids/user/pids.current": "12\n",
        },
    )
    limits = read_limits(root)
    assert (limits.cpus, limits.memory, limits.processes) == (3, 536870912, 500)


def test_limits_hybrid_mounts_use_both_versions(tmp_path: Path) -> None:
    unified = "50 23 0:60 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    root = write_host(
        tmp_path,
        groups="2:memory:/job\n0::/session\n",
        mounts=SPLIT + unified,
        files={
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1073741824\n",
            "sys/fs/cgroup/unified/session/pids.max": "30\n",
            "sys/fs/cgroup/unified/session/pids.current": "10\n",
        },
    )
    limits = read_limits(root)
    assert (limits.memory, limits.processes) == (1 << 30, 20)


def test_limits_in_a_container_that_hides_its_group(tmp_path: Path) -> None:
    """The path in /proc/self/cgroup is the host's; the mount shows only the container's own part."""
    root = write_host(
        tmp_path,
        groups="4:memory:/docker/abc\n",
        mounts="34 33 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        files={"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"},
    )
    assert read_limits(root).memory == 256 * MEBIBYTE
    (root / "proc/self/cgroup").write_text("4:memory:/../..\n")
    assert read_limits(root).memory == 256 * MEBIBYTE


@pytest.mark.parametrize("text", ["", "max", "garbage", "-5", "1 2 3", "100000 0", "9" * 400])
def test_limits_odd_values_are_no_limits(tmp_path: Path, text: str) -> None:
    base = "sys/fs/cgroup"
    files = {f"{base}/{name}": text for name in ("cpu.max", "pids.max", "pids.current")}
    root = write_host(tmp_path, groups="0::/\n", mounts=UNIFIED, files=files)
    assert read_limits(root).cpus == 16


def test_limits_missing_files_are_no_limits(tmp_path: Path) -> None:
    limits = read_limits(tmp_path)
    assert limits.cpus == len(os.sched_getaffinity(0))
    assert (limits.memory, limits.processes) == (None, None)


def test_limits_address_space_bounds_memory_and_threads(tmp_path: Path) -> None:
    limits = read_limits(write_host(tmp_path, address_space=str(1 << 30)))
    assert limits.memory == 1 << 30
    assert limits.memory_from == "RLIMIT_AS (ulimit -v)"
    assert choose_threads(limits) == 3


def test_limits_processes_subtract_what_the_user_runs(tmp_path: Path) -> None:
    others = {
        f"proc/{pid}/status": f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\n"
        for pid, uid, threads in ((10, 1000, 3), (11, 1000, 20), (12, 0, 500), (13, 10001, 5))
    }
    root = write_host(tmp_path, processes="64", files=others)
    assert read_limits(root, uid=1000).processes == 41
    assert read_limits(root, uid=0).processes is None, "the kernel does not hold root to it"
    write_tree(root, {"proc/loadavg": "0 0 0 1/30 7\n"})
    assert count_threads(root, 1000, enough_below=4000) == 30, "fewer than the limit in all: no need to count"


@each_row(
    ("limits", "wanted", "threads"),
    [
        *((Limits(16, None, None), None, 16), (Limits(256, None, None), None, 32), (Limits(2, None, None), 6, 6)),
        *((Limits(16, None, 60), None, 16), (Limits(16, None, 20), None, 12), (Limits(16, None, 20), 64, 12)),
        *((Limits(16, None, 3), None, 1), (Limits(16, None, 0), None, 1)),
        (Limits(64, 512 * MEBIBYTE, None), None, 10),
        (Limits(64, 10 * MEBIBYTE, None), None, 1),
        (Limits(64, None, None, 100 * MEBIBYTE), None, 1),
    ],
)
def test_threads_follow_the_limits(limits: Limits, wanted: int | None, threads: int) -> None:
    assert choose_threads(limits, wanted) == threads


@each_row(
    ("memory", "threads", "ahead"),
    [(None, 1, 0), (24 << 30, 2, 32 << 20), (24 << 30, 4, 256 << 20), (64 << 30, 16, 2 << 30),
     (64 << 30, 32, 2 << 30), (8 << 30, 16, 1 << 30), (512 << 20, 4, 64 << 20)],
)  # fmt: skip
def test_memory_for_layers_ahead_follows_threads_and_the_limit(memory: int | None, threads: int, ahead: int) -> None:
    assert choose_ahead(Limits(cpus=threads, memory=memory, processes=None), threads) == ahead


def test_nothing_is_read_ahead_without_room_for_its_threads() -> None:
    room = Limits(cpus=16, memory=64 << 30, processes=60, address_space=16 << 30)
    assert choose_ahead(room, 16) == 2 << 30
    assert choose_ahead(replace(room, processes=50), 16) == 0
    assert choose_ahead(replace(room, address_space=4 << 30), 16) == 0
