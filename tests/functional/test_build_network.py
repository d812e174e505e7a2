# SPDX-License-Identifier: BSD-3-Clause
"""Builds whose network stalls, breaks, comes back, or that are killed in a download: bounded, named, resumed."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import layers as build
from tests.builders.builds import SHELL, Workshop, warm_shop
from tests.builders.busybox import read_busybox
from tests.builders.images import make_config, noise
from tests.builders.waiting import wait_until
from tests.fakes.http_server import Reply
from tests.fakes.registry import FakeRegistry
from tests.wording import assert_says

shop = warm_shop

SOON = {"KEDGE_STALL_TIMEOUT": "1", "KEDGE_RETRIES": "1"}
ARRIVES = 100_000


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as made:
        tars = [
            build.layer(build.file("bin/sh", read_busybox(), mode=0o755), build.symlink("bin/wc", "sh")),
            build.layer(build.file("data", noise(400_000, "base"))),
        ]
        section = {"Env": ["PATH=/bin"]}
        made.add_image("team/base", "1", [build.compress(tar) for tar in tars], make_config(tars, section))
        yield made


def fail_layers(registry: FakeRegistry, **fault: object) -> None:
    for digest, data in registry.blobs.items():
        if len(data) > ARRIVES:
            registry.server.fail(f"GET .*/blobs/{digest}", **fault)


def write_recipe(shop: Workshop, registry: FakeRegistry) -> None:
    shop.write("Dockerfile", f"FROM {registry.host}/team/base:1\nRUN echo made > /made\n")


def list_processes(shop: Workshop) -> list[str]:
    """Those that were started with the directories of this test."""
    mark, found = os.fsencode(shop.runner.folder), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes() + (place / "cmdline").read_bytes():
                found.append(place.name)
        except OSError:
            continue
    return found


def check_clean(shop: Workshop, *left: str) -> None:
    """Nothing of a build that failed is there but what the next one goes on with."""
    assert shop.list_builds() == []
    assert list((shop.runner.folder / "cache/tmp").glob("*")) == []
    assert sorted(path.name for path in shop.context.iterdir()) == sorted(["Dockerfile", "busybox", *left])
    assert "Removed 0 damaged items" in shop.runner.read("cache", "verify")
    wait_until("all processes have ended", lambda: not list_processes(shop), timeout=20)


def build_at_last(shop: Workshop, registry: FakeRegistry) -> None:
    registry.server.faults.clear()
    shop.build("out.sif", ".")
    assert shop.look("out.sif")[0]["/data"].size == 400_000
    check_clean(shop, "out.sif")


def test_base_that_stalls_is_given_up_and_resumed(shop: Workshop, registry: FakeRegistry) -> None:
    write_recipe(shop, registry)
    fail_layers(registry, times=1, stall_at=ARRIVES)
    fail_layers(registry, times=1000, stall_at=0)
    began = time.monotonic()
    done = shop.start("out.sif", ".", env=SOON)
    assert time.monotonic() - began < 60
    assert done.returncode == 14, done.stderr
    assert_says(done.stderr, "build/dockerfile-download-given-up")
    assert f"no data from {registry.host}" in done.stderr
    assert "Traceback" not in done.stderr
    check_clean(shop)
    build_at_last(shop, registry)


def test_server_that_never_answers_is_given_up(shop: Workshop) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        for line in (f"FROM {host}/team/base:1", f"{SHELL}ADD http://{host}/data /data"):
            shop.write("Dockerfile", f"{line}\n")
            began = time.monotonic()
            done = shop.start("out.sif", ".", env=SOON)
            assert time.monotonic() - began < 60
            assert done.returncode == 14, done.stderr
            assert host in done.stderr
            assert "Dockerfile:" in done.stderr
    check_clean(shop)


def test_registry_that_comes_back_is_waited_for(shop: Workshop, registry: FakeRegistry) -> None:
    write_recipe(shop, registry)
    fail_layers(registry, times=1, stall_at=ARRIVES)
    fail_layers(registry, times=1, reset=True, cut_at=ARRIVES)
    fail_layers(registry, times=1, reply=Reply(503, b"back soon"))
    shop.build("first.sif", ".", env={"KEDGE_STALL_TIMEOUT": "1"})
    (shop.context / "first.sif").unlink()
    build_at_last(shop, registry)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_build_ended_in_a_download_goes_on_next_time(
    shop: Workshop, registry: FakeRegistry, number: signal.Signals
) -> None:
    write_recipe(shop, registry)
    fail_layers(registry, times=1, stall_at=ARRIVES)
    child = shop.begin("out.sif", ".")
    partial = shop.runner.folder / "cache/partial"
    wait_until("the server is silent", lambda: not registry.server.faults or registry.server.faults[0].times == 0)
    wait_until("a part is being written", lambda: any(partial.glob("*")))
    child.send_signal(number)
    child.communicate(timeout=30)
    wait_until("all processes have ended", lambda: not list_processes(shop), timeout=20)
    build_at_last(shop, registry)
    assert list(partial.rglob("*")) == []
