# SPDX-License-Identifier: BSD-3-Clause
"""The examples that compute: built by both recipes, and run at small size with the output they promise.

As an ordinary user, over a stand-in for the images that they begin with (tests/builders/pytorch_standin.py).
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.pytorch_standin import ExampleUser, open_user
from tests.requirements import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
# What the README of each runs, at a small size
RUNS = {
    "pi-mpi": "kedge launch --tasks 2 pi-mpi.sif pi-mpi.py 100000",
    "matmul": "kedge run matmul.sif --device cpu --sizes 128,256 --repeats 2",
    "nbody": "kedge exec nbody.sif nbody -benchmark -cpu -numbodies=1000 -i=2",
    "allreduce": "kedge launch --tasks 2 allreduce.sif allreduce.py -e 32K",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def user() -> Iterator[ExampleUser]:
    yield from open_user("arrays")


def find_difference(said: str, expected: str) -> str:
    """The first line that is not as promised; an ellipsis stands for any word, and blanks for any number of them."""
    for line, wanted in itertools.zip_longest(said.splitlines(), expected.splitlines(), fillvalue="(nothing)"):
        pattern = re.escape(" ".join(wanted.split())).replace("…", r"\S+")
        if not re.fullmatch(pattern, " ".join(line.split())):
            return f"{line!r} instead of {wanted!r}"
    return ""


@pytest.mark.parametrize("name", RUNS)
def test_examples_compute_what_they_promise(user: ExampleUser, name: str) -> None:
    folder = user.copy_example(name)
    user.read(f"kedge build {name}.sif {name}.def", folder)
    said = user.read(f"{RUNS[name]} 2>errors", folder)
    assert not find_difference(said, (EXAMPLES / name / "expected.txt").read_text())
    assert user.compare_recipes(name) == []


def test_examples_nbody_without_a_gpu_says_what_to_do(user: ExampleUser) -> None:
    folder = user.copy_example("nbody")
    user.read("[ -e nbody.sif ] || kedge build nbody.sif nbody.def", folder)
    status, said = user.run("kedge exec nbody.sif nbody -benchmark -numbodies=2000000", folder)
    assert status == 1
    assert "Error: only 0 Devices available, 1 requested.  Exiting.\n" in said
    assert "run the container with --nv" in said


def test_examples_bench_runs_the_same_programs(user: ExampleUser) -> None:
    """`kedge bench` in an image with NumPy: table, file, plot and comparison."""
    folder = user.copy_example("matmul")

    def bench(words: str) -> dict[str, Any]:
        return json.loads(user.read(f"kedge bench {words} 2>errors", folder))  # type: ignore[no-any-return]

    user.read("[ -e base.sif ] || kedge pull base.sif docker://ubuntu:24.04", folder)
    words = "--sizes 64,128 --types float64 --repeats 2 base.sif"
    said = user.read(f"kedge bench matmul --output a.json {words}", folder)
    assert "MATMUL MEMORY TIME MEDIAN SPREAD" in " ".join(said.split())
    assert "128 float64 393 kB" in " ".join(said.split())
    assert "NumPy" in said
    user.read(f"kedge bench matmul --output b.json {words}", folder)
    record = json.loads((folder / "a.json").read_text())
    assert [figure["name"] for figure in record["figures"]] == ["64 float64", "128 float64"]
    assert record["digest"].startswith("sha256:")
    compared = bench("compare --json a.json b.json")
    assert [figure["name"] for figure in compared["figures"]] == ["64 float64", "128 float64"]
    assert compared["differences"] == []
    bodies = bench("nbody --json --bodies 500 --iterations 1 base.sif")
    assert bodies["figures"][0]["name"] == "512 bodies float32"
    assert len(bodies["figures"][0]["values"]) == 3
    swept = bench("nbody --json --bodies 256,512 --iterations 1 --repeats 1 --plot bodies.svg base.sif")
    assert [figure["name"] for figure in swept["figures"]] == ["256 bodies float32", "512 bodies float32"]
    assert "bodies" in (folder / "bodies.svg").read_text()
    start = bench("start --json --repeats 3 base.sif")
    assert 0 < start["figures"][0]["limit"] < start["figures"][0]["median"]
    pulled = bench("pull --json --repeats 1 file:base.sif")
    assert [figure["unit"] for figure in pulled["figures"]] == ["s", "MB/s"]


@pytest.mark.parametrize("name", RUNS)
def test_examples_have_all_files(name: str) -> None:
    folder = EXAMPLES / name
    names = {path.name for path in folder.iterdir()}
    assert names >= {f"{name}.py", f"{name}.def", "Dockerfile", "kedge.toml", "expected.txt", "README.md"}
    job = tomllib.loads((folder / "kedge.toml").read_text())["job"]
    assert (job["image"], job["build"]) == (f"{name}.sif", f"{name}.def")
    assert all(
        Path(folder, found).exists()
        for found in re.findall(r"`(\S+\.(?:py|def|txt|toml))`", (folder / "README.md").read_text())
    )
