# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.tools.bench.computing import limit_cpu, limit_gpu


def make_root(folder: Path, cpuinfo: str, clock: str = "") -> Path:
    for name, text in {"proc/cpuinfo": cpuinfo, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": clock}.items():
        if text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def test_limits_of_a_gpu_by_type_and_number() -> None:
    assert limit_gpu("NVIDIA H200", "float32").rate == pytest.approx(66_900)
    assert limit_gpu("NVIDIA H200", "float32", devices=2).rate == pytest.approx(133_800)
    assert limit_gpu("NVIDIA H200", "bf16", rows=16384).name == "bf16 rate of H200"


def test_limits_small_matrices_are_bound_by_memory() -> None:
    small = limit_gpu("NVIDIA H200", "bf16", rows=256)
    assert small.rate == pytest.approx(4800 * 256 / 3)
    assert small.name == "memory of H200"


def test_limits_of_an_unknown_gpu_or_type_are_unknown() -> None:
    assert limit_gpu("Voodoo 2", "float32").rate is None
    assert limit_gpu("Tesla V100-SXM2-16GB", "tf32").name == "unknown: no tf32 rate for Tesla V100-SXM2-16GB"


def test_limits_of_a_cpu_need_its_clock(tmp_path: Path) -> None:
    if os.uname().machine != "aarch64":
        cpuinfo = "model name : Some\nflags : fma avx2\n"
        width = 32
    else:
        cpuinfo = "CPU implementer : 0x41\nCPU part : 0xd4f\n"
        width = 32
    assert limit_cpu("float32", make_root(tmp_path, cpuinfo)).rate is None
    cores = len(os.sched_getaffinity(0))
    known = make_root(tmp_path, cpuinfo, "3000000\n")
    assert limit_cpu("float32", known).rate == pytest.approx(cores * 3.0 * width)
    assert limit_cpu("float64", known).rate == pytest.approx(cores * 3.0 * width / 2)
    assert limit_cpu("bf16", known).rate is None


def test_limits_of_an_unknown_cpu_are_unknown(tmp_path: Path) -> None:
    assert limit_cpu("float32", make_root(tmp_path, "flags : fpu\n", "3000000")).rate is None
