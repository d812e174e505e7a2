# SPDX-License-Identifier: BSD-3-Clause
"""kedge with the system calls of Linux 4.18, the kernel of RHEL 8: as a bundle, and installed.

A filter answers every later call as that kernel does: `tests/programs/refuse_calls_after_4_18.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.builders.bundles import make_busybox_host
from tests.builders.containers import Runner, each_role
from tests.builders.old_kernels import below_4_18
from tests.requirements import require_root

pytestmark = [pytest.mark.root, pytest.mark.slow]

Run = Callable[..., subprocess.CompletedProcess[str]]

RECIPE = """Bootstrap: host
From: sh,cat,true,mkdir,chown

%post
    mkdir /made && chown 5:5 /made && echo built > /made/here

%runscript
    cat /made/here
"""
ASK = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
for number in range(424, 470):
    assert libc.syscall(number, -1, -1, -1, -1, -1, -1) == -1 and ctypes.get_errno() == errno.ENOSYS, number
for call in (lambda: os.memfd_create("x", 16), lambda: os.waitid(3, 0, os.WEXITED)):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EINVAL
    else:
        raise AssertionError
os.close(os.memfd_create("x", os.MFD_CLOEXEC))
"""


def test_filter_refuses_what_came_after_4_18() -> None:
    require_root()
    subprocess.run(below_4_18([sys.executable, "-c", ASK]), check=True)


@pytest.fixture(scope="module", params=["bundle", "user", "root"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs kedge in the user's home; the bundle on a host that has busybox alone."""
    require_root()
    if request.param == "bundle":
        folder = tmp_path_factory.mktemp("old") / "root"
        folder.parent.parent.chmod(0o755)
        yield replace(make_busybox_host(folder), is_old=True).run
        return
    for runner in each_role(request.param):
        yield run_installed(runner)


@pytest.fixture(scope="module")
def users() -> Iterator[Run]:
    """For what asks the same of the kernel whoever starts it."""
    require_root()
    for runner in each_role("user"):
        (runner.home / "demo.def").write_text(RECIPE)
        yield run_installed(runner)


def run_installed(runner: Runner) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            below_4_18(runner.argv(*words)),
            env=runner.variables(),
            cwd=runner.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def pull(run: Run) -> str:
    if run("inspect", "image.sif").returncode:
        done = run("pull", "image.sif", "host:sh,cat,env,sleep")
        assert done.returncode == 0, done.stderr
    return "image.sif"


def test_4_18_containers(run: Run) -> None:
    """After the first start and a pull; and the filter holds inside."""
    image = pull(run)
    for flags in ((), ("--contain", "--pid", "--ipc"), ("--writable-tmpfs",), ("--fakeroot",)):
        done = run("exec", *flags, image, "sh", "-c", "cat /proc/self/status; exit 7")
        assert done.returncode == 7, done.stderr
        assert re.search(r"^Seccomp_filters:\t[1-9]", done.stdout, re.MULTILINE)
        assert "Function not implemented" not in done.stderr


def test_4_18_jobs_of_the_local_queue(users: Run) -> None:
    run, image = users, pull(users)
    asked = run("submit", "--site", "local", "--name", "first", image, "sh", "-c", "echo in a job")
    assert asked.returncode == 0, asked.stderr
    assert run("wait", "--site", "local", "first").returncode == 0
    assert run("logs", "--site", "local", "first").stdout.splitlines()[-1] == "in a job"


def test_4_18_builds_and_ranks(users: Run) -> None:
    run = users
    built = run("build", "--force", "demo.sif", "demo.def")
    assert built.returncode == 0, built.stderr
    assert run("run", "demo.sif").stdout == "built\n"
    ranks = run("launch", "--ranks", "--tasks", "2", "demo.sif", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
    assert sorted(ranks.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], ranks.stderr


def test_4_18_instances(users: Run) -> None:
    run, image = users, pull(users)
    started = run("instance", "start", image, "one")
    assert started.returncode == 0, started.stderr
    inside = run("exec", "instance://one", "sh", "-c", "echo joined")
    stopped = run("instance", "stop", "one")
    assert (inside.stdout, stopped.returncode) == ("joined\n", 0), inside.stderr + stopped.stderr


def test_4_18_unpacked_images(users: Run) -> None:
    run, image = users, pull(users)
    unpacked = run("exec", "--root-from", "unpack", image, "sh", "-c", "echo unpacked")
    assert unpacked.stdout == "unpacked\n", unpacked.stderr
    assert run("pull", "--sandbox", "folder", "host:sh").returncode == 0
    assert run("exec", "folder", "sh", "-c", "echo folder").stdout == "folder\n"


def test_4_18_doctor_finds_no_bug(users: Run) -> None:
    done = users("doctor")
    assert "bug" not in done.stdout + done.stderr
    assert "Function not implemented" not in done.stdout + done.stderr
