# SPDX-License-Identifier: BSD-3-Clause
"""Containers whose root squashfuse mounts: what is in it, who ends when, and what is said when it does not work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.mounts.squashfuse import can_use_fuse, find_squashfuse
from tests.builders.containers import Runner, each_role, give_to, make_sandbox
from tests.builders.waiting import wait_until
from tests.requirements import require_program

WAY = ("--root-from", "squashfuse")


@pytest.fixture(scope="module", params=["user", "root"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    require_program("squashfuse_ll")
    for each in each_role(request.param):
        if can_use_fuse():
            pytest.skip(can_use_fuse())
        yield each


@pytest.fixture(scope="module")
def sif(runner: Runner) -> Path:
    sandbox = give_to(runner, make_sandbox(runner.home / "sandbox"))
    runner.read("convert", str(sandbox), str(runner.home / "small.sif"))
    return runner.home / "small.sif"


def servers(of: Path) -> list[str]:
    """The programs that serve an image just now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(of) in words and b"squashfuse" in words[0]:
                found.append(folder.name)
    return found


def as_words(uid: int) -> tuple[str, ...]:
    """root runs in a user namespace, too: else the kernel may be asked to mount."""
    return ("--userns",) if uid == 0 else ()


def test_server_whose_directory_is_a_link(runner: Runner, sif: Path) -> None:
    """/bin comes first in the jobs of Grid Engine, and leads to /usr/bin."""
    words = ("exec", *as_words(runner.uid), *WAY, str(sif), "cat", "/etc/passwd")
    assert runner.read(*words, env={"PATH": "/bin:/usr/bin"}).startswith("root:x:0:0")


@pytest.mark.parametrize("more", [(), ("--pid",), ("--fakeroot",), ("--contain", "--writable-tmpfs")])
def test_root_is_served_and_the_server_ends(runner: Runner, sif: Path, more: tuple[str, ...]) -> None:
    words = ("exec", *as_words(runner.uid), *WAY, *more, str(sif))
    assert runner.read(*words, "cat", "/etc/passwd").startswith("root:x:0:0")
    wait_until("no server is left", lambda: not servers(sif))


def test_server_is_there_as_long_as_the_payload_and_ends_with_its_kill(runner: Runner, sif: Path) -> None:
    argv = runner.argv("exec", *as_words(runner.uid), *WAY, str(sif), "sleep", "100")
    process = subprocess.Popen(argv, env=runner.variables(), cwd=runner.home, start_new_session=True)
    try:
        wait_until("a server is there", lambda: servers(sif))
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until("no server is left", lambda: not servers(sif))


def test_server_holds_no_descriptor_of_the_user(runner: Runner, sif: Path) -> None:
    reading, writing = os.pipe()
    argv = runner.argv("exec", *as_words(runner.uid), *WAY, str(sif), "sh", "-c", f"exec {writing}>&-; sleep 100")
    process = subprocess.Popen(argv, env=runner.variables(), cwd=runner.home, pass_fds=(writing,))
    os.close(writing)
    try:
        os.set_blocking(reading, False)
        wait_until("nobody holds the other end", lambda: servers(sif) and is_over(reading))
    finally:
        os.close(reading)
        process.kill()
        process.wait()


def is_over(reading: int) -> bool:
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("more", [(), ("--pid",)])
def test_damaged_image_is_an_error_not_a_hang(runner: Runner, sif: Path, more: tuple[str, ...]) -> None:
    data = bytearray(sif.read_bytes())
    data[-20_000:] = b"\x55" * 20_000
    bad = runner.folder / "bad.sif"
    bad.write_bytes(data)
    bad.chmod(0o644)
    done = runner.run("exec", *as_words(runner.uid), *WAY, *more, str(bad), "true")
    assert done.returncode == 255
    assert "Traceback" not in done.stderr
    wait_until("no server is left", lambda: not servers(bad))


@pytest.mark.parametrize("more", [(), ("--pid",)])
def test_what_a_failing_program_says_is_passed_on(runner: Runner, sif: Path, more: tuple[str, ...]) -> None:
    program = runner.folder / "broken_ll"
    program.write_text("#!/bin/sh\n# libfuse3\necho no way today >&2\nexit 3\n")
    program.chmod(0o755)
    env = {"KEDGE_SQUASHFUSE": str(program)}
    done = runner.run("exec", *as_words(runner.uid), *WAY, *more, str(sif), "true", env=env)
    assert done.returncode == 255
    assert "no way today" in done.stderr


def test_program_that_mounts_by_itself_is_ended_with_the_container(runner: Runner, sif: Path) -> None:
    """One of libfuse 2 cannot be given a device; a script without that library's name stands for it."""
    program = runner.folder / "old_ll"
    program.write_text(f'#!/bin/sh\nexec {require_program("squashfuse_ll")} "$@"\n')
    program.chmod(0o755)
    env = {"KEDGE_SQUASHFUSE": str(program)}
    words = ("exec", *as_words(runner.uid), *WAY, str(sif), "cat", "/etc/group")
    assert runner.read(*words, env=env).startswith("root:x:0:")
    wait_until("no server is left", lambda: not servers(sif))


def test_missing_program_is_said(runner: Runner, sif: Path) -> None:
    env = {"KEDGE_SQUASHFUSE": "/no/such/program"}
    done = runner.run("exec", *as_words(runner.uid), *WAY, str(sif), "true", env=env)
    assert done.returncode == 255
    assert "/no/such/program" in done.stderr


def test_find_squashfuse_prefers_the_one_with_threads() -> None:
    path, is_fuse3 = find_squashfuse({})
    assert path.endswith("squashfuse_ll")
    assert is_fuse3
