# SPDX-License-Identifier: BSD-3-Clause
"""The n-body program where there is no GPU: its options, the tutorial's figures, and its kernel compiled as C++."""

from __future__ import annotations

import importlib.util
import math
import struct
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.requirements import REPOSITORY, require_program

BODIES = 128
# What CUDA provides, for one thread at a time
PREAMBLE = """
#include <algorithm>
#include <cmath>
#include <cstdio>
using std::min;
#define __global__
#define __launch_bounds__(x)
#define __shared__ static
#define __align__(x) alignas(x)
#define __syncthreads()
#define REAL float
#define THREADS 1
#define PER_THREAD 3
#define RSQRT(v) (1.0f / std::sqrt(v))
struct { int x; } blockIdx, threadIdx;
"""
MAIN = f"""
int main() {{
    static Body old[{BODIES}], fresh[{BODIES}], speed[{BODIES}];
    if (std::fread(old, sizeof(Body), {BODIES}, stdin) != {BODIES}) return 1;
    for (blockIdx.x = 0; blockIdx.x * PER_THREAD < {BODIES}; blockIdx.x++)
        step(old, fresh, speed, 0, {BODIES}, {BODIES}, TIME_STEP, DAMPING, SOFTENING * SOFTENING);
    std::fwrite(fresh, sizeof(Body), {BODIES}, stdout);
}}
"""


@pytest.fixture(scope="module")
def nbody() -> ModuleType:
    specification = importlib.util.spec_from_file_location("nbody", REPOSITORY / "examples/nbody/nbody.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_nbody_figures_are_the_tutorials(nbody: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The time that the tutorial prints gives the rates that the tutorial prints."""
    options = nbody.Options(["-benchmark", "-numbodies=2000000"])
    assert nbody.round_bodies(options, options.numbodies) == 2000128
    nbody.print_seconds(options, 2000128, 21.7729844)
    assert capsys.readouterr().out.splitlines() == [
        'Warning: "number of bodies" specified 2000000 is not a multiple of 256.',
        "Rounding up to the nearest multiple: 2000128.",
        "2000128 bodies, total time for 10 iterations: 21772.984 ms",
        "= 1837.374 billion interactions per second",
        "= 36747.484 single-precision GFLOP/s at 20 flops per interaction",
    ]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-numbdies=5"], 2, "nbody: unknown option -numbdies=5"),
        (["-numbodies=many"], 2, "nbody: -numbodies takes a number, such as -numbodies=1"),
        (["-numdevices=0"], 1, "Error: -numdevices must be at least 1.  Exiting."),
        (["-numdevices=2", "-device=1"], 1, "Error: -device names one GPU, and -numdevices several.  Exiting."),
        (["-help"], 0, "nbody -benchmark [options]: times the forces between all pairs of bodies"),
    ],
)
def test_nbody_options(
    nbody: ModuleType, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    assert nbody.main(words) == status
    assert capsys.readouterr().out.splitlines()[0] == said


def test_nbody_accepts_the_samples_spellings(nbody: ModuleType) -> None:
    options = nbody.Options(["--benchmark", "-fp64", "-i=3", "--numbodies", "512"])
    assert (options.fp64, options.iterations, options.numbodies, options.perThread) == (True, 3, 512, 1)


def test_nbody_kernel_moves_bodies_as_newton_says(nbody: ModuleType, tmp_path: Path) -> None:
    compiler = require_program("g++")
    constants = "".join(f"#define {name} {getattr(nbody, name)}f\n" for name in ("TIME_STEP", "DAMPING", "SOFTENING"))
    source = tmp_path / "kernel.cpp"
    source.write_text(PREAMBLE + constants + nbody.KERNEL.replace("UNROLL", "4") + MAIN)
    subprocess.run([compiler, "-O1", "-w", source, "-o", tmp_path / "kernel"], check=True, timeout=100)
    values = nbody.make_bodies(BODIES, False)
    done = subprocess.run([tmp_path / "kernel"], input=values.tobytes(), capture_output=True, check=True, timeout=100)
    found = struct.unpack(f"{4 * BODIES}f", done.stdout)
    assert found == pytest.approx(move(values.tolist(), nbody), abs=1e-6)


def move(values: list[float], nbody: ModuleType) -> list[float]:
    """One step, in double precision and without any trick."""
    bodies = [values[place : place + 4] for place in range(0, len(values), 4)]
    moved: list[float] = []
    for here in bodies:
        pull = [0.0, 0.0, 0.0]
        for there in bodies:
            way = [there[axis] - here[axis] for axis in range(3)]
            distance = math.sqrt(sum(each * each for each in way) + nbody.SOFTENING**2)
            pull = [pull[axis] + there[3] * way[axis] / distance**3 for axis in range(3)]
        moved += [here[axis] + pull[axis] * nbody.DAMPING * nbody.TIME_STEP**2 for axis in range(3)] + [here[3]]
    return moved
