# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench matmul` and `kedge bench nbody`: how fast a GPU or CPU computes, against what it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kedge.errors import ProgramFailed
from kedge.tools.bench.limits import FlopLimit, limit_cpu, limit_gpu
from kedge.tools.bench.programs import ProgramPlace, run_example
from kedge.tools.bench.record import Figure
from kedge.tools.bench.repeats import Repeats

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
