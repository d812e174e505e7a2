# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench matmul` and `kedge bench nbody`: how fast a GPU or CPU computes, against what it can."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen
from kedge.compat.gpu_rates import find_gpu_rates
from kedge.errors import ProgramFailed
from kedge.system.host.cpu import Processor, read_processor
from kedge.tools.bench.programs import ProgramPlace, run_example
from kedge.tools.bench.record import Figure, Repeats

_GFLOPS = "GFLOP/s"
_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "bf16": 2, "float16": 2}  # of a number
_WRONG = {"float32": 1e-4, "float64": 1e-11, "tf32": 1e-2, "bf16": 2e-2, "float16": 1e-2}


def measure_matmul(
    words: Sequence[str], repeats: Repeats, where: ProgramPlace, environ: Mapping[str, str]
) -> tuple[tuple[Figure, ...], str]:
    """The figures, and the library that computed them; `words` choose sizes, types and the device."""
    common = ["--json", "--repeats", str(repeats.timed), "--warmup", str(repeats.warmup)]
    values = run_example("matmul", [*common, *words], where, environ)
    return tuple(_read_matmul(value) for value in values), str(values[0].get("library", ""))


def _read_matmul(value: Mapping[str, Any]) -> Figure:
    size, kind, device = int(value["size"]), str(value["type"]), str(value["device"])
    if not float(value["error"]) <= _WRONG.get(kind, 1e-2):
        raise ProgramFailed(
            f"the product of {size} x {size} matrices in {kind} is wrong: relative error {float(value['error']):.1e}",
            hint="the GPU, its memory or the library is damaged: try another node",
        )
    limit = limit_cpu(kind) if device == "cpu" else limit_gpu(device, kind, rows=size)
    rates = tuple(2e-9 * size**3 / float(seconds) for seconds in value["seconds"])
    return Figure(
        name=f"{size} {kind}",
        unit=_GFLOPS,
        values=rates,
        limit=limit.rate,
        limit_name=limit.name,
        line=kind,
        place=size,
    )


def describe_product(figure: Figure) -> tuple[int, float]:
    """Bytes of both matrices and their product, and seconds of one product, of a figure of `measure_matmul`."""
    rows = int(figure.place)
    return 3 * rows**2 * _BYTES.get(figure.line, 4), 2e-9 * rows**3 / figure.median


def measure_nbody(
    words: Sequence[str], repeats: Repeats, where: ProgramPlace, environ: Mapping[str, str]
) -> tuple[tuple[Figure, ...], str]:
    """The figure, and the device; `words` choose bodies, iterations, precision and devices."""
    common = ["-benchmark", "-json", f"-repeats={repeats.timed}", f"-warmup={repeats.warmup}"]
    (value,) = run_example("nbody", [*common, *words], where, environ)
    bodies, kind, devices = int(value["bodies"]), str(value["type"]), int(value["devices"])
    limit = _limit_nbody(str(value["device"]), kind, devices)
    operations = float(value["flops"]) * bodies**2 * int(value["iterations"])
    rates = tuple(1e-9 * operations / float(seconds) for seconds in value["seconds"])
    name = f"{bodies} bodies {kind}"
    figure = Figure(
        name=name,
        unit=_GFLOPS,
        values=rates,
        limit=limit.rate,
        limit_name=limit.name,
        line=kind,
        place=bodies,
        work=name,
        workers=devices,
        nodes=1,
    )
    return (figure,), str(value.get("library", ""))


def _limit_nbody(device: str, kind: str, devices: int) -> FlopLimit:
    return limit_gpu(device, kind, devices=devices) if devices else limit_cpu(kind)


# The most that the hardware allows: of a GPU by its data sheet, of a CPU by its cores, clock and vector units.

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
