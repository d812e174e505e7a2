# SPDX-License-Identifier: BSD-3-Clause
"""The n-body program where there is no GPU: its options, the tutorial's figures, its kernel compiled as C++, and what
it asks of a driver that is not one (tests/gpu/fake_cuda_for_nbody.c).
"""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.tools.bench.programs import read_program
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program

BODIES = 128
PROGRAM = REPOSITORY / "examples/nbody/nbody.py"
MODULES = sorted(path.stem for path in PROGRAM.parent.glob("*.py"))
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
def nbody() -> Iterator[SimpleNamespace]:
    """All that its modules define, as one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PROGRAM.parent)
        patch.setattr(sys, "dont_write_bytecode", True)
        found = [importlib.import_module(name) for name in MODULES]
        yield SimpleNamespace(**{key: value for module in found for key, value in vars(module).items()})
    for name in MODULES:
        del sys.modules[name]


@dataclass(frozen=True, slots=True)
class FakeGpus:
    """A directory with a libcuda and an NVRTC, which write down what they are asked."""

    folder: Path

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        given = {
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_CUDA_CALLS": str(self.calls),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = [sys.executable, *map(str, command)]
        return subprocess.run(
            words, env=given | variables, cwd=self.folder, capture_output=True, text=True, timeout=100, check=False
        )

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    def count(self, name: str) -> list[int]:
        return [int(line.split()[1]) for line in self.calls.read_text().splitlines() if line.split()[0] == name]


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> FakeGpus:
    folder = tmp_path_factory.mktemp("gpus")
    source = REPOSITORY / "tests/gpu/fake_cuda_for_nbody.c"
    words = ["-std=gnu11", "-shared", "-fPIC", "-w", source, "-o", folder / "libcuda.so.1"]
    subprocess.run([require_program("gcc"), *words], check=True, timeout=100)
    (folder / "libnvrtc.so").symlink_to("libcuda.so.1")
    return FakeGpus(folder)


def test_nbody_figures_are_the_tutorials(nbody: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
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


@each_row(
    "words, status, said",
    [
        (["-numbdies=5"], 2, "nbody: unknown option -numbdies=5"),
        (["-numbodies=many"], 2, "nbody: -numbodies takes a number, such as -numbodies=1"),
        (["-numdevices=0"], 1, "Error: -numdevices must be at least 1.  Exiting."),
        (["-numdevices=2", "-device=1"], 1, "Error: -device names one GPU, and -numdevices several.  Exiting."),
        (["-help"], 0, "nbody -benchmark [options]: times the forces between all pairs of bodies"),
    ],
)
def test_nbody_options(
    nbody: SimpleNamespace, capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    assert nbody.main(words) == status
    assert capsys.readouterr().out.splitlines()[0] == said


def test_nbody_accepts_the_samples_spellings(nbody: SimpleNamespace) -> None:
    options = nbody.Options(["--benchmark", "-fp64", "-i=3", "--numbodies", "512"])
    assert (options.fp64, options.iterations, options.numbodies, options.perThread) == (True, 3, 512, 1)


def test_nbody_kernel_moves_bodies_as_newton_says(nbody: SimpleNamespace, tmp_path: Path) -> None:
    compiler = require_program("g++")
    constants = "".join(f"#define {name} {getattr(nbody, name)}f\n" for name in ("TIME_STEP", "DAMPING", "SOFTENING"))
    source = tmp_path / "kernel.cpp"
    source.write_text(PREAMBLE + constants + nbody.KERNEL.replace("UNROLL", "4") + MAIN)
    subprocess.run([compiler, "-O1", "-w", source, "-o", tmp_path / "kernel"], check=True, timeout=100)
    values = nbody.make_bodies(BODIES, False)
    done = subprocess.run([tmp_path / "kernel"], input=values.tobytes(), capture_output=True, check=True, timeout=100)
    found = struct.unpack(f"{4 * BODIES}f", done.stdout)
    assert found == pytest.approx(move(values.tolist(), nbody), abs=1e-6)


def move(values: list[float], nbody: SimpleNamespace) -> list[float]:
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


def test_nbody_on_a_gpu_as_a_copied_directory(gpus: FakeGpus, tmp_path: Path) -> None:
    """Started through a link, as the image does, from a copy; the sample's lines, and one block for 1024 bodies."""
    shutil.copytree(PROGRAM.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "nbody").symlink_to("copy/nbody.py")
    done = gpus.run(tmp_path / "nbody", "-benchmark", "-numbodies=1000", "-i=2")
    said = re.sub(r"(?<=: )[\d.]+(?= ms)|(?<=^= )[\d.]+", "…", done.stdout, flags=re.MULTILINE)
    assert said.splitlines() == [
        "> Windowed mode",
        "> Simulation data stored in video memory",
        "> Single precision floating point simulation",
        "> 1 Devices used for simulation",
        'GPU Device 0: "Hopper" with compute capability 9.0',
        "",
        "> Compute 9.0 CUDA device: [Fake 0]",
        'Warning: "number of bodies" specified 1000 is not a multiple of 256.',
        "Rounding up to the nearest multiple: 1024.",
        "1024 bodies, total time for 2 iterations: … ms",
        "= … billion interactions per second",
        "= … single-precision GFLOP/s at 20 flops per interaction",
    ]
    assert (done.returncode, done.stderr) == (0, "")
    assert (gpus.count("blocks"), gpus.count("threads")) == ([1] * 3, [256] * 3)
    assert gpus.count("cuMemAlloc") == [1024 * 16] * 3
    assert "--gpu-architecture=sm_90" in gpus.calls.read_text()


def test_nbody_shares_the_bodies_between_gpus(gpus: FakeGpus) -> None:
    done = gpus.run(PROGRAM, "-benchmark", "-numdevices=2", "-numbodies=4096", "-i=3", "-warmup=0")
    assert "> Compute 9.0 CUDA device: [Fake 1]" in done.stdout
    assert (gpus.count("first"), gpus.count("count")) == ([0, 2048] * 3, [2048] * 6)
    assert gpus.count("cuMemcpyPeer") == [2048 * 16] * 6


def test_nbody_says_what_the_driver_refuses(gpus: FakeGpus) -> None:
    done = gpus.run(PROGRAM, "-benchmark", "-numbodies=1024", FAKE_CUDA_BYTES="1000")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "nbody: cuMemAlloc_v2 failed: out of memory")
    done = gpus.run(PROGRAM, "-numdevices=3")
    assert (done.returncode, done.stdout) == (1, "Error: only 2 Devices available, 3 requested.  Exiting.\n")


def test_nbody_as_one_text_needs_none_of_its_files(gpus: FakeGpus) -> None:
    """What `kedge bench nbody` gives to an image's Python; modules of the current directory are not its own."""
    (gpus.folder / "physics.py").write_text("raise SystemExit('the wrong physics')\n")
    done = gpus.run("-c", read_program("nbody"), "-benchmark", "-json", "-fp64", "-numbodies=512", "-repeats=2")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["device"], value["type"], value["bodies"], len(value["seconds"])) == ("Fake 0", "float64", 512, 2)
