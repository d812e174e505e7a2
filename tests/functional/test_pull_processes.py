# SPDX-License-Identifier: BSD-3-Clause
"""With many threads a large layer has a process of its own: what comes out, what is said, and what is left of it."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import LimitReached
from tests.builders import layers as build
from tests.builders.containers import Runner
from tests.builders.images import hash_file, make_config, noise
from tests.builders.waiting import wait_until
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

_SIZE = 9_000_000  # of a layer that gets a process
_ARRIVES = 3_000_000  # of it, where it stands still
pytestmark = pytest.mark.timeout(180)


@functools.cache
def make_layers() -> tuple[list[bytes], bytes]:
    """Three large layers and a config: a second's work."""
    tars = [
        build.layer(
            build.file(f"{number}/small", b"small"),
            build.file(f"{number}/large", noise(_SIZE, f"large {number}")),
            build.file("same", noise(300_000, "same")),
            build.file(f"{number}/text", b"text" * 100_000),
        )
        for number in range(3)
    ]
    return [build.compress(tar) for tar in tars], make_config(tars)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        made.add_image("team/large", "1", *make_layers())
        yield made


def stall_layers(registry: FakeRegistry) -> None:
    for digest, data in registry.blobs.items():
        if len(data) > _ARRIVES:
            registry.server.fail(f"GET .*/blobs/{digest}", times=1000, stall_at=_ARRIVES)


def list_packers(pull: subprocess.Popen[str]) -> list[int]:
    """The processes of a pull that pack layers; other tests have theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            session = int((path / "stat").read_text().rpartition(")")[2].split()[3])
            if session == pull.pid and b"\0pack-layer\0" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def start_kedge(runner: Runner, *words: str, limits: str = ":") -> subprocess.Popen[str]:
    own = {"KEDGE_CACHEDIR": f"{runner.home}/cache-{uuid.uuid4()}"}  # else a layer would be there, or a part of it
    argv = ["bash", "-c", f"{limits}; exec {shlex.join(runner.argv(*words))}"]
    return subprocess.Popen(
        argv, env=runner.variables(own), cwd=runner.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def stalled(runner: Runner, registry: FakeRegistry) -> Iterator[subprocess.Popen[str]]:
    """A pull whose layers stand still, once its processes are there."""
    stall_layers(registry)
    reference = f"docker://{registry.host}/team/large:1"
    with start_kedge(runner, "pull", "--threads", "8", "--force", "x.sif", reference) as pull:
        try:
            wait_until("there are processes", lambda: len(list_packers(pull)) == 3)
            yield pull
            wait_until("nothing is left", lambda: not list_packers(pull))
        finally:
            pull.kill()
    assert not (runner.home / "x.sif").exists()


def test_the_number_of_threads_changes_no_byte(runner: Runner, registry: FakeRegistry) -> None:
    reference = f"docker://{registry.host}/team/large:1"
    for threads in ("1", "8"):
        with start_kedge(runner, "pull", "--threads", threads, f"{threads}.sif", reference) as pull:
            assert pull.wait(120) == 0
            assert list_packers(pull) == []
    assert hash_file(runner.home / "1.sif") == hash_file(runner.home / "8.sif")
    runner.read("pull", "--sandbox", "--threads", "8", "tree", reference)
    assert (runner.home / "tree/2/large").read_bytes() == noise(_SIZE, "large 2")
    assert (runner.home / "tree/0/small").read_bytes() == b"small"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)])
def test_a_signal_to_all_of_them_is_told_once(stalled: subprocess.Popen[str], number: signal.Signals) -> None:
    os.killpg(stalled.pid, number)
    said = stalled.communicate(timeout=60)[1]
    assert stalled.returncode == 128 + number, said
    assert "Traceback" not in said
    assert "killed" not in said


def test_processes_end_with_the_command_that_is_killed(stalled: subprocess.Popen[str]) -> None:
    stalled.kill()
    assert "Traceback" not in stalled.communicate(timeout=60)[1]


def test_a_process_that_is_killed_ends_the_pull_with_a_word_about_it(stalled: subprocess.Popen[str]) -> None:
    for packer in list_packers(stalled):
        os.kill(packer, signal.SIGKILL)
    said = stalled.communicate(timeout=60)[1]
    assert stalled.returncode == LimitReached.exit_code, said
    assert_says(said, "image/process-inflated-layer")
    assert "--threads 2" in said


def test_a_file_that_may_not_grow_is_told_as_with_few_threads(runner: Runner, registry: FakeRegistry) -> None:
    words = ("pull", "--threads", "8", "y.sif", f"docker://{registry.host}/team/large:1")
    with start_kedge(runner, *words, limits="ulimit -f 4000; trap '' XFSZ") as pull:
        said = pull.communicate(timeout=120)[1]
        assert pull.returncode not in (0, 1), said
        assert "Traceback" not in said
        wait_until("nothing is left", lambda: not list_packers(pull))
    assert not (runner.home / "y.sif").exists()
