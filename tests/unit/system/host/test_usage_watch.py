# SPDX-License-Identifier: BSD-3-Clause
"""What a run uses is watched by a child: samples, GPUs, and what is left of it when the driver hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from kedge.system.host.usage_watch import UsageWatch, choose_visible
from tests.builders.nvml import build_nvml
from tests.builders.rows import each_row

_MEBIBYTE = 1 << 20


def watch(seconds: float = 0.3, **options: Any) -> dict[str, Any]:
    """What is known after some seconds."""
    watching = UsageWatch(
        options.get("describe", dict), has_gpus=options.get("has_gpus", False), environ=options.get("environ", {})
    )
    time.sleep(seconds)
    return watching.end()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedge.system.nvml.NAME", str(build_nvml()))
    monkeypatch.setenv("FAKE_NVML_GPUS", "NVIDIA H200,NVIDIA H200")


def test_usage_watch_sees_the_memory_of_children() -> None:
    program = (
        "import time; data = bytearray(200 << 20); data[::4096] = bytes(51200 * [1]); print(flush=True); time.sleep(9)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        known = watch()
        child.kill()
    assert known["memory_peak"] > 200 * _MEBIBYTE
    assert known["samples"] >= 2
    assert known["processes_peak"] >= 1


def test_usage_watch_tells_facts_also_when_it_ends_at_once() -> None:
    assert watch(0, describe=lambda: {"image": "x"})["image"] == "x"


def test_usage_watch_survives_facts_that_cannot_be_found() -> None:
    def fail() -> dict[str, object]:
        raise OSError("no such image")

    assert watch(0, describe=fail)["problem"] == "OSError: no such image"


@pytest.mark.usefixtures("nvml")
def test_usage_watch_samples_gpus() -> None:
    known = watch(has_gpus=True)
    assert known["driver"] == "580.95.05"
    first, second = known["gpus"]
    assert (first["name"], first["memory_peak"], first["utilisation_mean"]) == ("NVIDIA H200", 10**9, 50.0)
    assert (second["memory_peak"], second["utilisation_peak"], second["memory"]) == (2 * 10**9, 51, 150754820096)


@pytest.mark.usefixtures("nvml")
def test_usage_watch_counts_the_visible_gpus_alone() -> None:
    (gpu,) = watch(has_gpus=True, environ={"CUDA_VISIBLE_DEVICES": "1"})["gpus"]
    assert gpu["utilisation_mean"] == 51.0


@pytest.mark.usefixtures("nvml")
def test_usage_watch_takes_what_a_gpu_does_not_tell_for_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_LOAD", "-")
    first, _ = watch(has_gpus=True)["gpus"]
    assert "utilisation_mean" not in first
    assert first["memory_peak"] == 10**9


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("variable", ["FAKE_NVML_LOAD", "FAKE_NVML_INIT"])
def test_usage_watch_does_not_wait_for_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "hang")
    began = time.monotonic()
    known = watch(0.5, has_gpus=True, describe=lambda: {"image": "x"})
    assert time.monotonic() - began < 10
    assert known["image"] == "x"
    assert known["samples"] >= 1


def test_usage_watch_without_a_driver_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kedge.system.nvml.NAME", "libnvidia-ml-of-nobody.so")
    known = watch(has_gpus=True)
    assert "libnvidia-ml-of-nobody.so" in known["gpu_problem"]
    assert "gpus" not in known


def test_usage_watch_leaves_no_child() -> None:
    watching = UsageWatch(dict, has_gpus=False, environ={})
    child = watching._child
    watching.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


@each_row(
    ("value", "chosen"),
    [("", {0, 1}), ("1", {1}), ("0, 1", {0, 1}), ("GPU-b", {1}), ("99", {0, 1}), ("MIG-x", {0, 1}), ("²", {0, 1})],
)
def test_choose_visible(value: str, chosen: set[int]) -> None:
    assert choose_visible(["GPU-a1", "GPU-b2"], {"CUDA_VISIBLE_DEVICES": value}) == chosen
    assert choose_visible(["GPU-a1", "GPU-b2"], {}) == {0, 1}
