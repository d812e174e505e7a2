# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull` on a login node: an ordinary user, little memory, few processes. Needs root to set that up."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import LimitReached
from tests.builders.containers import Runner, as_user, each_role
from tests.builders.control_group import enter_group, memory_group
from tests.builders.images import hash_file, kedge
from tests.builders.machine_image import add_machine_image
from tests.builders.waiting import wait_until
from tests.fakes.registry import FakeRegistry
from tests.programs import read_program
from tests.requirements import require_root

pytestmark = [pytest.mark.root, pytest.mark.slow]

PEAK = 400 << 20


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    """An image whose layers are large enough for processes, and a small one, for limits that ask for no more."""
    require_root()
    with FakeRegistry() as running:
        _, count = add_machine_image(running, 80_000_000)
        assert count >= 1500
        assert sum(len(blob) > 9_000_000 for blob in running.blobs.values()) == 2
        add_machine_image(running, 20_000_000, "team/small")
        yield running


@pytest.fixture(scope="module")
def expected(registry: FakeRegistry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sha256 of the SIFs that pulls without limits give."""
    folder = tmp_path_factory.mktemp("free")
    for name in ("machine", "small"):
        kedge("pull", folder / name, f"docker://{registry.host}/team/{name}:1", cache=folder / "cache")
    return {name: hash_file(folder / name) for name in ("machine", "small")}


# Runs a command in this very process' place in the tree and says how much memory it and its children had at most.
MEASURE = read_program("measure_within_limits")


@pytest.fixture
def account() -> Iterator[Runner]:
    """A user with an empty home, whose commands run under limits."""
    require_root()
    yield from each_role("user")


def pull(
    account: Runner, *words: str, limits: str = ":", group: Path | None = None, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """`kedge pull`; `limits` are the shell's words that set them. The output ends with the peak RSS in KiB."""
    measured = [sys.executable, "-c", MEASURE, sys.executable, "-m", "kedge", "pull", *words]
    argv = ["bash", "-c", f"{limits or ':'}; exec {shlex.join(as_user(account.uid, measured))}"]
    return account.call(enter_group(group, argv) if group else argv, env={"PATH": path or os.environ["PATH"]})


def read_peak(done: subprocess.CompletedProcess[str]) -> int:
    return int(done.stdout.split()[-1]) << 10


def left_behind(home: Path) -> list[str]:
    return [str(path) for path in home.rglob("*") if "tmp-" in path.name or path.parent.name in ("tmp", "attempts")]


def test_pull_with_little_memory_and_few_processes(registry, account, expected):
    with memory_group(512 << 20) as group:
        reference = f"docker://{registry.host}/team/machine:1"
        done = pull(account, "x.sif", reference, limits="ulimit -u 64", group=group)
        assert done.returncode == 0, done.stderr
    assert 10 << 20 < read_peak(done) < PEAK
    assert hash_file(account.home / "x.sif") == expected["machine"]
    assert (account.home / "x.sif").stat().st_uid == account.uid
    assert left_behind(account.folder) == []


@pytest.mark.parametrize(
    ("memory", "limits"),
    [
        (512 << 20, ""),
        (0, "ulimit -u 48"),
        (0, "ulimit -u 12"),
        (0, "ulimit -v 3000000"),
        *(pytest.param(*row, marks=pytest.mark.long) for row in ((1 << 30, ""), (0, "ulimit -v 500000"))),
        (0, "ulimit -v 250000"),  # as Grid Engine's h_vmem does it
    ],
)
def test_pull_with_many_threads_and_little_of_all_else(registry, account, expected, memory, limits):
    """Layers have processes where these fit, and threads where they do not."""
    reference = f"docker://{registry.host}/team/machine:1"
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(memory_group(memory)) if memory else None
        done = pull(account, "--threads", "12", "x.sif", reference, limits=limits, group=group)
    assert done.returncode == 0, done.stderr
    assert hash_file(account.home / "x.sif") == expected["machine"]
    assert left_behind(account.folder) == []


@pytest.mark.parametrize("count", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_pull_where_no_thread_can_be_started(registry, account, expected, count):
    """With one process there is no thread and no child: everything is done in the one thread there is."""
    done = pull(account, "x.sif", f"docker://{registry.host}/team/small:1", limits=f"ulimit -u {count}")
    assert done.returncode == 0, done.stderr
    assert hash_file(account.home / "x.sif") == expected["small"]
    assert left_behind(account.folder) == []


def test_pull_with_all_limits_to_a_folder(registry: FakeRegistry, account: Runner) -> None:
    with memory_group(512 << 20) as group:
        reference = f"docker://{registry.host}/team/machine:1"
        done = pull(account, "--sandbox", "x", reference, limits="ulimit -u 64", group=group)
        assert done.returncode == 0, done.stderr
    assert read_peak(done) < PEAK
    assert (account.home / "x/bin/busybox").stat().st_uid == account.uid


def test_pull_that_is_killed_for_memory_is_explained(registry: FakeRegistry, account: Runner) -> None:
    """The kernel kills it; the command says so, with the limit and the command that runs it in a job."""
    programs = account.home / "programs"
    programs.mkdir()
    (programs / "srun").write_text("#!/bin/sh\n")
    (programs / "srun").chmod(0o755)
    reference = f"docker://{registry.host}/team/machine:1"
    with memory_group(30 << 20) as group:
        done = pull(account, "x.sif", reference, group=group, path=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == LimitReached.exit_code, done.stderr
    assert "memory" in done.stderr
    assert "31.5 MB" in done.stderr
    assert f"srun --mem=8G --cpus-per-task=4 --time=1:00:00 kedge pull x.sif {reference}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (account.home / "x.sif").exists()
    done = pull(account, "x.sif", reference)
    assert done.returncode == 0, done.stderr
    assert "the last attempt" in done.stderr
    assert left_behind(account.folder) == []


def is_owned(process: Path, uid: int) -> bool:
    try:
        return process.stat().st_uid == uid
    except FileNotFoundError:
        return False  # it ended meanwhile


@contextlib.contextmanager
def busy_user(uid: int, count: int) -> Iterator[None]:
    """The user runs `count` other processes already, and none that an earlier test has ended is still there."""
    wait_until("no process is left", lambda: not any(is_owned(each, uid) for each in Path("/proc").glob("[0-9]*")))
    running = [subprocess.Popen(as_user(uid, ["sleep", "300"])) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_pull_of_a_user_whose_processes_are_used_up(registry, account, expected):
    with busy_user(account.uid, 6):
        reference = f"docker://{registry.host}/team/small:1"
        done = pull(account, "x.sif", reference, limits="ulimit -u 8")
    assert done.returncode == 0, done.stderr
    assert hash_file(account.home / "x.sif") == expected["small"]
