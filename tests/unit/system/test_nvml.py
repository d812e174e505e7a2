# SPDX-License-Identifier: BSD-3-Clause
"""NVML is asked in a child; a driver that hangs, crashes or refuses costs the deadline and no more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kedge.system.host.gpu_probe import explain_code, probe_gpus
from kedge.system.nvml import NvmlError, ask_nvml
from tests.builders.nvml import build_nvml
from tests.builders.rows import each_row
from tests.requirements import require_program
from tests.wording import assert_says


@pytest.fixture(name="library")
def built_library() -> str:
    """A libnvidia-ml that does what variables say."""
    return str(build_nvml())


def test_probe_gpus_tells_what_nvml_tells(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_DRIVER", "535.104.05")
    monkeypatch.setenv("FAKE_NVML_CUDA", "12020")
    probe = probe_gpus(60.0, library)
    assert probe.has_answered
    assert (probe.driver, probe.library, probe.cuda) == ("535.104.05", "535.104.05", "12.2")
    (gpu,) = probe.gpus
    assert (gpu.name, gpu.capability, gpu.brand) == ("NVIDIA H200", "9.0", "nvidia")
    assert gpu.uuid.startswith("GPU-")
    assert gpu.memory == 150754820096
    assert gpu.is_partitioned is False
    assert gpu.is_persistent is True
    assert gpu.fabric == ""


def test_probe_gpus_lists_the_parts_of_mig(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_MIG", "1")
    monkeypatch.setenv("FAKE_NVML_FABRIC", "2")
    (gpu,) = probe_gpus(60.0, library).gpus
    assert gpu.is_partitioned is True
    assert len(gpu.parts) == 2
    assert all(part.startswith("MIG-") for part in gpu.parts)
    assert gpu.fabric == "in progress"


def test_probe_gpus_one_lost_gpu_does_not_hide_the_others(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_GPUS", "NVIDIA A100-SXM4-40GB,lost")
    first, second = probe_gpus(60.0, library).gpus
    assert first.name == "NVIDIA A100-SXM4-40GB"
    assert "fallen off the bus" in second.problem


def test_probe_gpus_does_not_wait_for_a_driver_that_hangs(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_INIT", "hang")
    probe = probe_gpus(0.3, library)
    assert probe.has_hung
    assert not probe.has_answered
    assert_says(probe.problem, "doctor/did-not-answer-s", "0.3")


def test_probe_gpus_survives_a_library_that_crashes(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_INIT", "crash")
    probe = probe_gpus(60.0, library)
    assert "SIGABRT" in probe.problem
    assert not probe.has_hung


@each_row(
    ("code", "words"),
    [(18, "version mismatch"), (4, "no permission"), (9, "not loaded"), (15, "lost"), (16, "reset"), (77, "error 77")],
)
def test_probe_gpus_explains_a_code(library: str, monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    monkeypatch.setenv("FAKE_NVML_INIT", str(code))
    probe = probe_gpus(60.0, library)
    assert probe.code == code
    assert words in probe.problem
    assert words in explain_code(code)


def test_probe_gpus_says_that_the_library_is_missing(tmp_path: Path) -> None:
    probe = probe_gpus(60.0, str(tmp_path / "libnvidia-ml.so.1"))
    assert "cannot be loaded" in probe.problem
    assert probe.code is None


def test_ask_nvml_is_content_with_an_old_library(tmp_path: Path) -> None:
    """Functions that a library does not have yet are values that are not known."""
    source = tmp_path / "old.c"
    source.write_text(
        "int nvmlInit_v2(void) { return 0; }\n"
        "int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }\n"
        "int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **gpu) { (void)number; *gpu = gpu; return 0; }\n"
    )
    target = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([require_program("gcc"), "-shared", "-fPIC", "-o", str(target), str(source)], check=True, timeout=60)
    probe = probe_gpus(60.0, str(target))
    assert probe.has_answered
    assert (probe.driver, probe.cuda) == ("", "")
    assert (probe.gpus[0].name, probe.gpus[0].capability, probe.gpus[0].is_partitioned) == ("", "", None)


def test_ask_nvml_refuses_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_bytes(b"")
    with pytest.raises(NvmlError):
        ask_nvml(str(path))
