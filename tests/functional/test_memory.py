# SPDX-License-Identifier: BSD-3-Clause
"""Deaths by the memory limit are explained. The tests with a real limit make a control group and need root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cluster.host_memory import (
    count_memory_kills,
    explain_killed,
    explain_memory,
    mark_attempt,
    suggest_job,
    watch_memory,
)
from kedge.errors import LimitReached, ProgramFailed
from kedge.system.host.limits import Limits, read_limits
from kedge.system.owned_names import machine_name
from tests.builders.control_group import enter_group, memory_group
from tests.builders.host_tree import write_host, write_tree
from tests.programs import read_program
from tests.requirements import REPOSITORY
from tests.wording import assert_begins, assert_reads, assert_says

LIMIT = 96 << 20
CHILD = read_program("be_killed_for_memory")


@pytest.fixture
def job_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))  # without the schedulers that other tests installed
    return folder


def add_program(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("srun", "srun --mem=8G --cpus-per-task=4 --time=1:00:00 kedge pull 'a b'"),
        ("qrsh", "qrsh -cwd -l h_vmem=8G -now no kedge pull 'a b'"),
        ("qsub", "qsub -I -l select=1:ncpus=4:mem=8gb -x -- kedge pull 'a b'"),
    ],
)
def test_job_command_follows_the_scheduler(job_programs: Path, program: str, command: str) -> None:
    assert suggest_job(["kedge", "pull", "a b"]) == ""
    add_program(job_programs, program)
    assert suggest_job(["kedge", "pull", "a b"]) == command


def test_memory_is_explained_by_its_source() -> None:
    text = explain_memory(Limits(1, 512_000_000, None, memory_from="/sys/fs/cgroup/memory.max"))
    assert_reads(text, "submit/process-use-memory", "512 MB", "/sys/fs/cgroup/memory.max")


@pytest.mark.parametrize("version", [1, 2])
def test_memory_kills_are_counted(tmp_path: Path, version: int) -> None:
    root = write_group(tmp_path, version, 3)
    assert count_memory_kills(root)[0] == 3


def write_group(root: Path, version: int, kills: int) -> Path:
    if version == 2:
        mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        files = {"sys/fs/cgroup/job/memory.events": f"low 0\nmax 9\noom 4\noom_kill {kills}\noom_group_kill 0\n"}
        return write_host(root, groups="0::/job\n", mounts=mounts, files=files)
    mounts = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    files = {"sys/fs/cgroup/memory/job/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"}
    return write_host(root, groups="4:memory:/job\n", mounts=mounts, files=files)


def test_watch_memory_explains_a_memory_error(job_programs: Path) -> None:
    add_program(job_programs, "srun")
    with pytest.raises(LimitReached, match="packing ran out of memory") as caught, watch_memory("packing"):
        raise MemoryError
    assert "srun --mem=8G" in (caught.value.hint or "")


def test_watch_memory_explains_a_killed_child_only_if_one_was_killed(tmp_path: Path) -> None:
    root = write_group(tmp_path, 2, 0)
    with pytest.raises(ProgramFailed), watch_memory("packing", root):
        raise ProgramFailed("'mksquashfs' was killed by SIGKILL")

    def be_killed() -> None:
        write_tree(root, {"sys/fs/cgroup/job/memory.events": "oom_kill 1\n"})
        raise ProgramFailed("'mksquashfs' was killed by SIGKILL")

    with pytest.raises(LimitReached), watch_memory("packing", root):
        be_killed()


def test_attempt_that_ends_leaves_no_mark(tmp_path: Path) -> None:
    with mark_attempt(tmp_path / "attempts", "x", "here"):
        assert len(list((tmp_path / "attempts").iterdir())) == 1
        assert explain_killed(tmp_path / "attempts") == [], "it still runs"
    assert list((tmp_path / "attempts").iterdir()) == []
    with pytest.raises(KeyError), mark_attempt(tmp_path / "attempts", "x", "here"):
        raise KeyError
    assert list((tmp_path / "attempts").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000])
def test_attempt_mark_that_is_damaged_is_removed_in_silence(tmp_path: Path, data: bytes) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    (tmp_path / f"attempt.{machine_name()}.{process.pid}.1.feed").write_bytes(data)
    assert explain_killed(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_attempt_killed_by_somebody_is_told_once(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from kedge.cluster.host_memory import mark_attempt\n"
        "with mark_attempt(Path(sys.argv[1]), 'pulling debian', 'login1'): print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    told = explain_killed(tmp_path, "pulling debian")
    assert len(told) == 1
    assert_begins(told[0], "submit/last-attempt-pulling-debian-killed", "login1")
    assert explain_killed(tmp_path) == []


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory."""
    with memory_group(LIMIT) as group:
        yield group


def run_inside(group: Path, folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    command = enter_group(group, [sys.executable, "-c", CHILD, str(folder), mode])
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.root
def test_killed_by_a_real_limit_the_guard_says_so(small_group: Path, tmp_path: Path) -> None:
    done = run_inside(small_group, tmp_path / "attempts", "guarded")
    assert done.returncode == 0, done.stderr
    assert_says(done.stdout, "submit/pulling-debian-ran-out-memory", f"{LIMIT / 1e6:.3g}")


@pytest.mark.root
def test_killed_by_a_real_limit_the_next_run_says_so(small_group: Path, tmp_path: Path) -> None:
    done = run_inside(small_group, tmp_path / "attempts", "alone")
    assert done.returncode == -signal.SIGKILL
    told = explain_killed(tmp_path / "attempts")
    assert len(told) == 1
    assert_says(told[0], "submit/killed-because-memory-ran-out")


@pytest.mark.root
def test_limits_of_a_real_group_are_read(small_group: Path) -> None:
    script = "from kedge.system.host.limits import read_limits; print(read_limits().memory)"
    command = enter_group(small_group, [sys.executable, "-c", script])
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    assert int(subprocess.run(command, env=environ, capture_output=True, check=True).stdout) == LIMIT
    assert read_limits().memory != LIMIT
