# SPDX-License-Identifier: BSD-3-Clause
"""Servers that stop sending, or send too slowly: what a pull says, how soon it can be ended, what it leaves behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import NetworkFailed
from tests.builders import layers as build
from tests.builders.images import make_config, noise
from tests.builders.waiting import wait_until
from tests.builders.warm_kedge import kedge
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

_SIZE = 400_000
_ARRIVES = 300_000
_AT_ONCE = 4.0  # seconds; below one where nothing else runs, and each download was once waited for for five


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tars = [build.layer(build.file(f"data{number}", noise(_SIZE, f"stall {number}"))) for number in range(4)]
        made.add_image("team/slow", "1", [build.compress(tar) for tar in tars], make_config(tars))
        yield made


def stall_layers(registry: FakeRegistry, **fault: object) -> None:
    """Misbehave for layers, not for the config."""
    for digest, data in registry.blobs.items():
        if len(data) > _ARRIVES:
            registry.server.fail(f"GET .*/blobs/{digest}", **fault)


def start_kedge(folder: Path, *words: str | Path) -> subprocess.Popen[str]:
    own = {"KEDGE_CACHEDIR": str(folder / "c"), "KEDGE_NODEDIR": str(folder / "node")}
    argv = [sys.executable, "-m", "kedge", *map(str, words)]
    return subprocess.Popen(argv, env={**os.environ, **own}, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_downloads(cache: Path, count: int) -> None:
    wait_until(f"{count} downloads have begun", lambda: len(list((cache / "leases").glob("*"))) >= count)


@pytest.mark.parametrize(
    ("verb", "number"), [("pull", signal.SIGINT), ("pull", signal.SIGTERM), ("exec", signal.SIGTERM)]
)
def test_a_signal_ends_a_stalled_download_at_once_and_gives_leases_back(registry, tmp_path, verb, number):
    """The signal goes to the command alone, as from `kill` and `timeout`: its children hear of it, too."""
    stall_layers(registry, times=1000, stall_at=_ARRIVES)
    seconds = []
    while len(seconds) < 3 and min(seconds, default=_AT_ONCE) >= _AT_ONCE:  # a busy machine may be slow, not each time
        seconds.append(end_stalled_download(registry, tmp_path / str(len(seconds)), verb, number))
    assert min(seconds) < _AT_ONCE


def end_stalled_download(registry: FakeRegistry, folder: Path, verb: str, number: signal.Signals) -> float:
    """The seconds between the signal and the end of the command."""
    folder.mkdir()
    reference = f"docker://{registry.host}/team/slow:1"
    process = start_kedge(folder, verb, *([folder / "x.sif", reference] if verb == "pull" else [reference, "true"]))
    wait_for_downloads(folder / "c", 4)
    process.send_signal(number)
    began = time.monotonic()
    said = process.communicate(timeout=60)[1]
    seconds = time.monotonic() - began
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert list((folder / "c/leases").glob("*")) == []
    assert [path for path in folder.rglob("*") if "tmp-" in path.name or path.suffix == ".sif"] == []
    return seconds


def test_ctrl_c_at_a_terminal_counts_once(registry: FakeRegistry, tmp_path: Path) -> None:
    """The terminal sends SIGINT to both processes, and the parent passes on its own: the clean-up must still end."""
    stall_layers(registry, times=100, stall_at=_ARRIVES)
    process = start_kedge(tmp_path, "pull", tmp_path / "x.sif", f"docker://{registry.host}/team/slow:1")
    wait_for_downloads(tmp_path / "c", 4)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGINT, said
    assert said.count("kedge: interrupted") == 1
    assert list((tmp_path / "c/leases").glob("*")) == []


def test_silence_is_said_and_the_download_goes_on(registry: FakeRegistry, tmp_path: Path) -> None:
    stall_layers(registry, times=1, stall_at=_ARRIVES)
    words = ("pull", "--stall-timeout", "1", tmp_path / "x.sif", f"docker://{registry.host}/team/slow:1")
    done = kedge(*words, cache=tmp_path / "c")
    assert_says(done.stderr, "pull/no-data-s-trying-again", registry.host)


def test_the_final_error_says_what_arrived_and_the_next_pull_goes_on_from_there(registry, tmp_path):
    stall_layers(registry, times=1000, stall_at=30_000)
    words = (
        *("pull", "--stall-timeout", "1", "--retries", "2", "--connections", "1", tmp_path / "x.sif"),
        f"docker://{registry.host}/team/slow:1",
    )
    done = kedge(*words, cache=tmp_path / "c", check=False)
    assert done.returncode == NetworkFailed.exit_code, done.stderr
    assert_says(done.stderr, "pull/download-given-up-no-data")
    assert re.search(r"; 90 kB of 400 kB of [0-9a-f]{12} have arrived", done.stderr)  # three times 30 kB
    assert "resumes this download" in done.stderr
    kept = max(path.stat().st_size for path in (tmp_path / "c/partial").rglob("*"))
    assert kept > 0
    registry.server.faults.clear()
    registry.server.log.clear()
    kedge(*words, cache=tmp_path / "c")
    assert any(f"bytes={kept}-" in each.headers.get("range", "") for each in registry.server.seen("/blobs/"))


def test_a_server_below_the_minimum_speed_is_left_and_asked_again(registry: FakeRegistry, tmp_path: Path) -> None:
    stall_layers(registry, times=1, trickle=0.05)
    done = kedge(
        *("pull", "--minimum-speed", "1M", "--stall-timeout", "1", tmp_path / "x.sif"),
        f"docker://{registry.host}/team/slow:1",
        cache=tmp_path / "c",
    )
    assert_says(done.stderr, "pull/less-minimum-mb-s-trying")


def test_a_server_that_stays_below_the_minimum_speed_is_given_up(registry: FakeRegistry, tmp_path: Path) -> None:
    stall_layers(registry, times=1000, trickle=0.1)
    words = ("--minimum-speed", "10M", "--stall-timeout", "1", "--retries", "2", "--connections", "1")
    reference = f"docker://{registry.host}/team/slow:1"
    done = kedge("pull", *words, tmp_path / "x.sif", reference, cache=tmp_path / "c", check=False)
    assert done.returncode == NetworkFailed.exit_code, done.stderr
    assert_says(done.stderr, "pull/download-given-up")
    assert_says(done.stderr, "pull/less-minimum-s", "10.5 MB")
