# SPDX-License-Identifier: BSD-3-Clause
"""The most that the hardware allows: of a GPU by its data sheet, of a CPU by its cores, clock and vector units."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.compat.gpu_rates import find_gpu_rates
from kedge.system.host.cpu import Processor, read_processor

_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "bf16": 2, "float16": 2}
# float32 operations of a core in a cycle: lanes x vector units x 2 for a multiply-add
_ARM_WIDTHS = {"Neoverse N1": 16, "Neoverse N2": 16, "Neoverse V1": 32, "Neoverse V2": 32}
_AVX2_WIDTH = 32


@frozen
class FlopLimit:
    """GFLOP/s, and where that comes from; None: unknown, and why."""

    rate: float | None
    name: str


def limit_gpu(device: str, kind: str, *, devices: int = 1, rows: int = 0) -> FlopLimit:
    """Return the limit of GPUs of a model, for a type of numbers; a product of `rows` is bound by the memory, too."""
    rates = find_gpu_rates(device)
    rate = rates.find_rate(kind) * devices * 1000 if rates else 0.0
    if not rates or not rate:
        return FlopLimit(None, f"unknown: no {kind} rate for {device}")
    stated = FlopLimit(rate, f"{kind} rate of {rates.model}")
    if rows and rates.memory:
        through_memory = rates.memory * devices * rows / (1.5 * _BYTES[kind])  # 2 rows³ over 3 rows² numbers
        if through_memory < rate:
            return FlopLimit(through_memory, f"memory of {rates.model}")
    return stated


def limit_cpu(kind: str, root: Path = Path("/")) -> FlopLimit:
    """Return the limit of the cores that this process may use."""
    width = _find_width(read_processor(str(root)))
    clock = _read_clock(root)
    if kind not in ("float32", "float64") or width is None:
        return FlopLimit(None, "unknown: vector units of this CPU")
    if clock is None:
        return FlopLimit(None, "unknown: the kernel does not state the CPU's clock")
    cores = _count_cores(root)
    rate = cores * clock * width / (2 if kind == "float64" else 1)
    return FlopLimit(rate, f"{cores} cores x {clock:.2f} GHz x {width // (2 if kind == 'float64' else 1)}")


def _find_width(processor: Processor) -> int | None:
    """None: unknown, as with AVX-512, of which some models have two units and others one."""
    features = processor.features or frozenset()
    if processor.architecture == "amd64" and {"avx2", "fma"} <= features and "avx512f" not in features:
        return _AVX2_WIDTH
    return next((width for name, width in _ARM_WIDTHS.items() if processor.model.startswith(name)), None)


def _read_clock(root: Path) -> float | None:
    """GHz, the highest."""
    try:
        text = (root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").read_text()
        return int(text) / 1e6 or None
    except (OSError, ValueError):
        return None


def _count_cores(root: Path) -> int:
    """Cores, not threads of cores."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            siblings = (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)
        cores.add(siblings)
    return len(cores)
