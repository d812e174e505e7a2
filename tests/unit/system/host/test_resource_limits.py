# SPDX-License-Identifier: BSD-3-Clause
"""--memory, --cpus and the like: what they ask for, which files of a control group say it, and where one is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from kedge.errors import RuntimeUnsuited, UsageError
from kedge.system.host import resource_group
from kedge.system.host.resource_group import enter_limits
from kedge.system.host.resource_request import plan_first, plan_second, read_request
from tests.builders.rows import each_row

G = 1 << 30


def test_limits_are_the_files_of_both_versions() -> None:
    asked = ["memory=8G", "memory-swap=10g", "memory-reservation=512M", "cpus=1.5", "cpu-shares=1024"]
    request = read_request([*asked, "cpuset-cpus=0-1", "pids-limit=100", "blkio-weight=500"])
    assert plan_first(request) == {
        "memory": [
            ("memory.limit_in_bytes", str(8 * G)),
            ("memory.soft_limit_in_bytes", str(G // 2)),
            ("memory.memsw.limit_in_bytes", str(10 * G)),
        ],
        "cpu": [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000"), ("cpu.shares", "1024")],
        "cpuset": [("cpuset.cpus", "0-1")],
        "pids": [("pids.max", "100")],
        "blkio": [("blkio.weight", "500")],
    }
    assert plan_second(request) == {
        "memory": [("memory.max", str(8 * G)), ("memory.low", str(G // 2)), ("memory.swap.max", str(2 * G))],
        "cpu": [("cpu.max", "150000 100000"), ("cpu.weight", "39")],
        "cpuset": [("cpuset.cpus", "0-1")],
        "pids": [("pids.max", "100")],
        "io": [("io.weight", "default 500")],
    }


def test_limits_of_a_file_are_apptainers(tmp_path: Path) -> None:
    path = tmp_path / "cgroups.toml"
    path.write_text('[memory]\nlimit = 1073741824\n[cpu]\nshares = 512\nquota = 50000\ncpus = "0"\n[pids]\nlimit = 7\n')
    request = read_request([f"apply-cgroups={path}"])
    assert (request.memory, request.shares, request.quota, request.cpus) == (G, 512, 50000, "0")
    assert request.processes == 7
    path.write_text("[devices]\nallow = true\n")
    with pytest.raises(UsageError, match=r"kedge cannot set 'devices\.allow'"):
        read_request([f"apply-cgroups={path}"])


@each_row(
    "text",
    [
        *("memory=lots", "memory=-1", "cpus=0", "cpus=many", "cpu-shares=1", "cpuset-cpus=a-b", "pids-limit=x"),
        *("blkio-weight=5", "blkio-weight-device=/dev/null", "blkio-weight-device=/no/such:500", "memory-swap=1G"),
    ],
)
def test_limits_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_request([text])
    assert caught.value.hint


def test_limits_swap_without_bound_needs_no_memory() -> None:
    assert plan_second(read_request(["memory-swap=-1"])) == {"memory": [("memory.swap.max", "max")]}
    with pytest.raises(UsageError, match="cgroup v2 has no such setting"):
        plan_second(read_request(["oom-kill-disable=true"]))


class Tree:
    """A tree of version 2 in plain files; what the kernel puts into a new group is put there by `make`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.top = root / "sys/fs/cgroup"
        self.own = self.top / "user/app/shell"
        for group in (self.own, *self.own.parents[:3]):
            self.fill(group)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text("0::/user/app/shell\n")
        (root / "proc/self/mountinfo").write_text("1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        monkeypatch.setattr(resource_group, "_make_group", self.make)

    def fill(self, group: Path) -> None:
        group.mkdir(parents=True, exist_ok=True)
        for name in ("cgroup.procs", "cgroup.subtree_control", "memory.max", "pids.max", "cpu.max"):
            (group / name).write_text("max\n" if name.endswith(".max") else "")

    def make(self, parent: Path) -> Path:
        self.fill(parent / "kedge-new")
        return parent / "kedge-new"


def test_limits_make_a_group_of_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, monkeypatch)
    made = enter_limits(read_request(["memory=1G", "pids-limit=9"]), ["memory=1G"], tmp_path)
    assert made == [tree.own / "kedge-new"]
    assert (made[0] / "memory.max").read_text().strip() == str(G)
    assert (made[0] / "pids.max").read_text().startswith("9")
    assert (made[0] / "cgroup.procs").read_text() == "0"
    assert (tree.own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_limits_go_beside_a_busy_group_and_never_out_of_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path, monkeypatch)
    (tree.own / "cgroup.subtree_control").unlink()  # as the kernel refuses a group that has processes
    made = enter_limits(read_request(["memory=1G"]), ["memory=1G"], tmp_path)
    assert made == [tree.own.parent / "kedge-new"]
    (tree.own / "memory.max").write_text("1000000\n")
    with pytest.raises(RuntimeUnsuited, match="--memory --cpus cannot be applied") as caught:
        enter_limits(read_request(["memory=1G"]), ["memory=1G", "cpus=1.5"], tmp_path)
    assert "systemd-run --user --scope -p MemoryMax=1G -p CPUQuota=150% kedge" in (caught.value.hint or "")


def test_limits_without_control_groups_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnsuited, match="this host has no control groups"):
        enter_limits(read_request(["pids-limit=9"]), ["pids-limit=9"], tmp_path)
