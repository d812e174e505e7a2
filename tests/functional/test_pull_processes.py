# SPDX-License-Identifier: BSD-3-Clause
"""With many threads a large layer has a process of its own: what comes out, what is said, and what is left of it."""

from __future__ import annotations

import os
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

_SIZE = 12_000_000  # of a layer that gets a process
_ARRIVES = 3_000_000  # of it, where it stands still
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tars = [
            build.layer(
                build.file(f"{number}/small", b"small"),
                build.file(f"{number}/large", noise(_SIZE, f"large {number}")),
                build.file("same", noise(300_000, "same")),
                build.file(f"{number}/text", b"text" * 100_000),
            )
            for number in range(3)
        ]
        made.add_image("team/large", "1", [build.compress(tar) for tar in tars], make_config(tars))
        yield made


def stall_layers(registry: FakeRegistry) -> None:
    for digest, data in registry.blobs.items():
        if len(data) > _ARRIVES:
            registry.server.fail(f"GET .*/blobs/{digest}", times=1000, stall_at=_ARRIVES)


def list_packers(uid: int) -> list[int]:
    """The processes of a user that pack layers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == uid and b"\0pack-layer\0" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def start_pull(runner: Runner, registry: FakeRegistry) -> subprocess.Popen[str]:
    """A pull whose layers stand still, once its processes are there."""
    stall_layers(registry)
    words = ("pull", "--threads", "8", "--force", "x.sif", f"docker://{registry.host}/team/large:1")
    own = {"KEDGE_CACHEDIR": f"{runner.home}/cache-{uuid.uuid4()}"}  # else a layer would be there, or a part of it
    process = subprocess.Popen(
        runner.argv(*words), env=runner.variables(own), cwd=runner.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    wait_until("there are processes", lambda: len(list_packers(runner.uid)) == 2)
    return process


def test_the_number_of_threads_changes_no_byte(runner: Runner, registry: FakeRegistry) -> None:
    reference = f"docker://{registry.host}/team/large:1"
    for threads in ("1", "8"):
        runner.read("pull", "--threads", threads, f"{threads}.sif", reference)
    assert hash_file(runner.home / "1.sif") == hash_file(runner.home / "8.sif")
    runner.read("pull", "--sandbox", "--threads", "8", "tree", reference)
    assert (runner.home / "tree/2/large").read_bytes() == noise(_SIZE, "large 2")
    assert (runner.home / "tree/0/small").read_bytes() == b"small"
    assert list_packers(runner.uid) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_all_of_them_is_told_once(runner: Runner, registry: FakeRegistry, number: signal.Signals) -> None:
    process = start_pull(runner, registry)
    os.killpg(process.pid, number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert "killed" not in said
    wait_until("nothing is left", lambda: not list_packers(runner.uid))
    assert not (runner.home / "x.sif").exists()


def test_processes_end_with_the_command_that_is_killed(runner: Runner, registry: FakeRegistry) -> None:
    process = start_pull(runner, registry)
    process.kill()
    said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    wait_until("nothing is left", lambda: not list_packers(runner.uid))


def test_a_process_that_is_killed_ends_the_pull_with_a_word_about_it(runner: Runner, registry: FakeRegistry) -> None:
    process = start_pull(runner, registry)
    for packer in list_packers(runner.uid):
        os.kill(packer, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == LimitReached.exit_code, said
    assert "the process that inflated layer" in said
    assert "--threads 2" in said
    assert not (runner.home / "x.sif").exists()
    assert list_packers(runner.uid) == []


def test_a_file_system_that_is_full_is_told_as_with_few_threads(runner: Runner, registry: FakeRegistry) -> None:
    reference = f"docker://{registry.host}/team/large:1"
    script = f"ulimit -f 4000; trap '' XFSZ; exec {' '.join(runner.argv('pull', '--threads', '8', 'y.sif', reference))}"
    done = subprocess.run(
        ["bash", "-c", script], env=runner.variables(), cwd=runner.home, capture_output=True, text=True, check=False
    )
    assert done.returncode not in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert not (runner.home / "y.sif").exists()
    wait_until("nothing is left", lambda: not list_packers(runner.uid))
