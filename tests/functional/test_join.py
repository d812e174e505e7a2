# SPDX-License-Identifier: BSD-3-Clause
"""Entering the namespaces of a process that lives, as the user who runs the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.container.processes.join_namespaces import KINDS
from kedge.system.spawn import start_of
from tests.programs import read_program
from tests.requirements import require_root, require_user_namespaces
from tests.wording import assert_begins, assert_says

JOIN = read_program("join_namespaces")


@pytest.fixture
def container() -> Iterator[Callable[..., int]]:
    """Starts a shell that sleeps in new namespaces; returns its number."""
    require_user_namespaces()
    started: list[subprocess.Popen[bytes]] = []

    def start(*flags: str, script: str = "") -> int:
        words = ["unshare", "-U", "-r", *flags, "/bin/sh", "-c", f"{script}\necho ready; exec sleep 600"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def join_and_run(pid: int, script: str, start: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOIN, str(pid), str(start), script], capture_output=True, text=True, check=False
    )


def namespaces_of(pid: int | str) -> dict[str, str]:
    return {kind: str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in KINDS}


def test_join_enters_every_namespace_that_differs(container: Callable[..., int]) -> None:
    pid = container("-m", "-i", "-u", "-n")
    done = join_and_run(pid, " ".join(f"readlink /proc/self/ns/{kind};" for kind in KINDS))
    assert done.stdout.split() == list(namespaces_of(pid).values()), done.stderr
    assert namespaces_of(pid)["pid"] == namespaces_of("self")["pid"]


def test_join_sees_the_containers_mounts_and_root(container: Callable[..., int], tmp_path: Path) -> None:
    pid = container("-m", script=f"mount -t tmpfs none {tmp_path} && touch {tmp_path}/inside")
    done = join_and_run(pid, f"ls {tmp_path}; pwd")
    assert done.stdout.split() == ["inside", "/"], done.stderr


def test_join_process_namespace_begins_with_the_child(container: Callable[..., int]) -> None:
    outer = container("-m", "-p", "-f", "--kill-child", "--mount-proc", script="test $$ = 1 || exit 1")
    first = int(Path(f"/proc/{outer}/task/{outer}/children").read_text())
    for pid in (outer, first):  # the one that supervises leads there too
        done = join_and_run(pid, "cat /proc/1/cmdline | tr '\\0' ' '; readlink /proc/self/ns/pid")
        assert done.stdout.startswith("sleep 600"), done.stderr
        assert done.stdout.endswith(namespaces_of(first)["pid"] + "\n")


def test_join_process_that_has_ended_is_said(container: Callable[..., int]) -> None:
    done = join_and_run(2**22 - 5, "true")
    assert done.returncode == 1
    assert_begins(done.stderr, "run/process-held-container-ended")


def test_join_number_used_again_is_not_entered(container: Callable[..., int]) -> None:
    pid = container("-m")
    assert join_and_run(pid, "true", start_of(pid)).returncode == 0
    done = join_and_run(pid, "true", start_of(pid) + 1)
    assert "has ended" in done.stderr


def test_join_somebody_elses_container_is_refused(container: Callable[..., int]) -> None:
    require_root()
    pid = container("-m")
    other = ["setpriv", "--reuid", "1501", "--regid", "1501", "--clear-groups"]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*other, sys.executable, "-c", JOIN, str(pid), "0", "true"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert_says(done.stderr, "run/container-process")
    assert "belongs to another user" in done.stderr


def test_join_zombie_has_ended() -> None:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert "has ended" in join_and_run(process.pid, "true").stderr
    process.wait()
