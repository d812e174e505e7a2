# SPDX-License-Identifier: BSD-3-Clause
"""--memory, --cpus and --pids-limit for real: a user with a part of the tree has them, and others are told why not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.control_group import enter_group
from tests.requirements import require_root
from tests.wording import assert_says

TOP = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu", "cpuset")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    require_root()  # who gives a part of the tree to a user
    yield from each_role("user")


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    return give_to(runner, make_sandbox(runner.folder / "image"))


@pytest.fixture
def delegated(runner: Runner) -> Iterator[list[Path]]:
    """Groups that belong to the user, of each version that has the controllers here."""
    name = f"kedge-limits-{os.getpid()}-{time.monotonic_ns()}"
    firsts = [TOP / each / name for each in CONTROLLERS if (TOP / each / "cgroup.procs").exists()]
    groups = firsts or [TOP / name, TOP / name / "shell"]
    try:
        for group in groups:
            _make(group, runner.uid)
    except OSError as problem:
        pytest.skip(f"a control group cannot be made here: {problem}")
    try:
        yield firsts or groups[1:]
    finally:
        for group in reversed(groups):
            _remove(group)


def _make(group: Path, uid: int) -> None:
    group.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):  # version 1 takes no process before
        if (group / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((group.parent / name).read_text())
    if (group / "cgroup.subtree_control").exists() and group.parent != TOP:
        (group.parent / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in CONTROLLERS))
    for path in (group, group / "cgroup.procs", *group.glob("cgroup.subtree_control")):
        os.chown(path, uid, uid)


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 60
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for below in group.iterdir():
                if below.is_dir():
                    below.rmdir()
            group.rmdir()
        time.sleep(0.05)


def run_in(groups: list[Path], runner: Runner, *words: str) -> subprocess.CompletedProcess[str]:
    command = runner.argv(*words)
    for group in groups:
        command = enter_group(group, command)
    return runner.call(command)


def find_file(told: str, controller: str, first: str, second: str) -> Path:
    """The file of the group that a line of /proc/self/cgroup names: `first` in version 1, `second` in version 2."""
    lines = [line.split(":", 2) for line in told.splitlines() if line.count(":") >= 2]
    old = next((path for _, names, path in lines if controller in names.split(",")), "")
    if old and (TOP / controller).is_dir():
        return TOP / controller / old.lstrip("/") / first
    return TOP / next(path for _, names, path in lines if not names).lstrip("/") / second


def test_limits_hold_for_the_container(runner: Runner, image: Path, delegated: list[Path]) -> None:
    script = (
        "cat /proc/self/cgroup; i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i + 1)); done; echo all started; kill 0"
    )
    done = run_in(delegated, runner, "exec", "--pids-limit", "20", str(image), "sh", "-c", script)
    assert "kedge-" in done.stdout, done.stderr
    assert "all started" not in done.stdout
    hungry = "cat /proc/self/cgroup; x=x; while [ ${#x} -lt 100000000 ]; do x=$x$x; done; echo has room"
    done = run_in(delegated, runner, "exec", "--memory", "20M", "--cpus", "0.5", str(image), "sh", "-c", hungry)
    assert done.returncode in (-9, 137, 2), done.stderr  # killed, or told that there is no memory
    assert "has room" not in done.stdout
    assert "cannot be applied" not in done.stderr
    # what is left of the group says it still
    assert find_file(done.stdout, "cpu", "cpu.cfs_quota_us", "cpu.max").read_text().split()[0] == "50000"


def test_limits_of_an_instance_are_those_of_its_group(runner: Runner, image: Path, delegated: list[Path]) -> None:
    started = run_in(
        delegated, runner, "instance", "start", "--memory", "64M", "--cpu-shares", "512", str(image), "lim"
    )
    assert started.returncode == 0, started.stderr
    try:
        told = json.loads(runner.read("instance", "list", "--json"))["instances"][0]
        groups = Path(f"/proc/{told['pid']}/cgroup").read_text()
        assert find_file(groups, "memory", "memory.limit_in_bytes", "memory.max").read_text().strip() == str(64 << 20)
        assert json.loads(runner.read("instance", "stats", "--json", "lim"))["memory_limit"] == 64 << 20
    finally:
        runner.run("instance", "stop", "--force", "lim")


def test_limits_groups_that_are_left_are_removed_by_the_next(runner, image, delegated):
    for _ in range(3):
        done = run_in(delegated, runner, "exec", "--pids-limit", "50", str(image), "true")
        assert done.returncode == 0, done.stderr
    left = [path for group in delegated for path in group.parent.rglob("kedge-[0-9]*") if path.is_dir()]
    assert len([path for path in left if path.parent in delegated or path.parent == delegated[0].parent]) <= 2


def test_limits_are_refused_where_the_user_has_no_part_of_the_tree(runner: Runner, image: Path) -> None:
    done = runner.run("exec", "--memory", "100M", str(image), "true")
    assert done.returncode == 255
    assert "--memory cannot be applied: you may not create control groups on this host" in done.stderr
    assert "systemd-run --user --scope -p MemoryMax=100M kedge" in done.stderr
    assert "Traceback" not in done.stderr
    done = runner.run("exec", "--memory", "much", str(image), "true")
    assert_says(done.stderr, "run/not-valid-value-memory", "much")
