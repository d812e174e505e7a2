# SPDX-License-Identifier: BSD-3-Clause
"""Facts about the host that a plan rests on, and a host without /proc, or with one that shows nothing."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.container.facts import gather_host, read_memory
from kedge.container.missing_proc import explain_missing_proc
from tests.wording import assert_reads

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def make_tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_memory_is_the_machines_or_that_of_a_group_above(tmp_path: Path) -> None:
    assert read_memory(str(tmp_path)) == MACHINE
    limits = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n"}
    assert read_memory(make_tree(tmp_path, limits)) == MACHINE
    files = {
        "proc/self/cgroup": "0::/slurm/job_1/step_0\n",
        "sys/fs/cgroup/slurm/job_1/memory.max": "5242880\n",
        "sys/fs/cgroup/slurm/job_1/step_0/memory.max": "max\n",
    }
    assert read_memory(make_tree(tmp_path, files)) == 5242880


def test_memory_of_the_first_version_of_control_groups(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "7:cpu,cpuacct:/x\n5:memory:/slurm/job\n0::/\n",
        "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": "7340032\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert read_memory(make_tree(tmp_path, files)) == 7340032


def test_gather_says_who_asks_and_where() -> None:
    host = gather_host(dict(os.environ))
    assert (host.uid, host.gid, host.cwd) == (os.getuid(), os.getgid(), str(Path.cwd()))
    assert host.machine == os.uname().machine
    assert os.umask(host.umask) == host.umask


def test_proc_that_is_not_there_or_restricted_is_said_to_be(tmp_path) -> None:
    assert explain_missing_proc() is None
    problem = explain_missing_proc(str(tmp_path / "self/fd"))
    assert problem.message.endswith("kedge cannot read /proc/self/fd (No such file or directory)")
    assert problem.context == {"/proc": "not mounted"}
    assert_reads(problem.hint, "run/mount-first-mount-t-proc")
    problem = explain_missing_proc(str(tmp_path / "fd"))
    assert problem.context == {"/proc": "mounted, but restricted"}
    assert "unrestricted /proc" in str(problem.hint)
