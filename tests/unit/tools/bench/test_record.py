# SPDX-License-Identifier: BSD-3-Clause
"""Records of benches, and the limits that their figures are compared with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.builders.rows import each_row
from tests.wording import assert_reads

from kedge.errors import FileProblem
from kedge.tools.bench.computing import describe_product, limit_cpu, limit_gpu
from kedge.tools.bench.record import BenchRecord, Figure, Machine, read_record

MACHINE = Machine("node01", "Neoverse V2", 72, 480 << 30, ("NVIDIA H200",) * 2, "580.95.05", "6.8.0")
RECORD = BenchRecord(
    "matmul",
    (Figure("4096 float32", "GFLOP/s", (50e3, 52e3, 51e3), 66.9e3, "float32 rate of H200", "float32", 4096.0),),
    MACHINE,
    "pytorch.sif",
    "sha256:" + "a" * 64,
    "PyTorch 2.4.1",
    "0.1.0",
    "2026-11-16T12:00:00Z",
)


def test_limits_of_gpus_and_figures() -> None:
    (figure,) = RECORD.figures
    assert figure.median == 51e3
    assert figure.spread == pytest.approx(2 / 51)
    assert figure.percent == pytest.approx(76.23, abs=0.01)
    # The columns of TACC's table: three matrices of 4096 x 4096 numbers, and 2 N³ operations at the median's rate
    memory, seconds = describe_product(RECORD.figures[0])
    assert memory == 3 * 4096**2 * 4
    assert seconds == pytest.approx(2 * 4096**3 / 51e12)
    assert describe_product(Figure("8 bf16", "GFLOP/s", (1.0,), line="bf16", place=8.0))[0] == 3 * 64 * 2
    figure = Figure("kedge exec", "s", (0.02, 0.04, 0.03), 0.003)
    assert figure.percent == pytest.approx(10)
    assert Figure("pull", "s", (1.0,)).percent is None
    assert limit_gpu("NVIDIA H200", "float32").rate == pytest.approx(66_900)
    assert limit_gpu("NVIDIA H200", "float32", devices=2).rate == pytest.approx(133_800)
    assert limit_gpu("NVIDIA H200", "bf16", rows=16384).name == "bf16 rate of H200"
    small = limit_gpu("NVIDIA H200", "bf16", rows=256)
    assert small.rate == pytest.approx(4800 * 256 / 3)
    assert small.name == "memory of H200"
    assert limit_gpu("Voodoo 2", "float32").rate is None
    assert_reads(
        limit_gpu("Tesla V100-SXM2-16GB", "tf32").name, "bench/unknown-no-rate", "tf32", "Tesla V100-SXM2-16GB"
    )


def test_record_is_read_as_it_was_written_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(RECORD.as_dict()))
    assert read_record(path) == RECORD
    assert MACHINE.show("gpus") == "2 x NVIDIA H200"
    assert MACHINE.show("memory") == "480 GiB"
    assert Machine().show("driver") == "unknown"


@each_row("change", [
    {"figures": []}, {"figures": [{"name": "x"}]}, {"figures": "x"}, {"machine": None}, {"machine": {}},
    {"figures": [{**RECORD.figures[0].as_dict(), "values": [0]}]},
    {"figures": [{**RECORD.figures[0].as_dict(), "values": ["nan"]}]},
    {"figures": [{**RECORD.figures[0].as_dict(), "values": []}]},
])  # fmt: skip
def test_record_damaged_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**RECORD.as_dict(), **change}))
    with pytest.raises(FileProblem, match=r"'.*a\.json' is not a record of kedge bench"):
        read_record(path)


@each_row("data", [b"", b"\xff\xfe", b"[]", b"[" * 100_000, b"{}", b"3"])
def test_record_of_any_bytes_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(FileProblem):
        read_record(path)


def make_root(folder: Path, cpuinfo: str, clock: str = "") -> Path:
    for name, text in {"proc/cpuinfo": cpuinfo, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": clock}.items():
        if text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def test_limits_of_cpus(tmp_path: Path) -> None:
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
    assert limit_cpu("float32", make_root(tmp_path, "flags : fpu\n", "3000000")).rate is None
