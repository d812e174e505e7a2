# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench` as an ordinary user on one host, with real Open MPI and MPICH in images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.containers import Runner, warm_runner
from tests.builders.mpi_images import make_mpi_image
from tests.builders.pypi_tools import require_tool
from tests.wording import assert_reads

runner = warm_runner
FAMILIES = ("openmpi", "mpich")


@pytest.fixture(scope="module")
def images(runner: Runner) -> dict[str, Path]:
    return {family: make_mpi_image(runner, family) for family in FAMILIES}


def bench(runner: Runner, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(runner.read("bench", *words, "--warm-up", "0", "--repeats", "1", "--json"))
    return found


def test_bench_pi_is_the_same_on_any_number_of_ranks(runner: Runner, images: dict[str, Path]) -> None:
    results = [
        bench(runner, "pi", "--tasks", str(ranks), "--intervals", "1000000", str(images[family]))
        for family, ranks in (("openmpi", 1), ("mpich", 4))
    ]
    assert [result["ranks"] for result in results] == [1, 4]
    assert len({result["pi"] for result in results}) == 1
    assert results[0]["error"] < 1e-12


@pytest.mark.parametrize("family", FAMILIES)
def test_bench_allreduce_by_mpi(runner: Runner, images: dict[str, Path], family: str) -> None:
    result = bench(runner, "allreduce", "--tasks", "2", "--bytes", "1M", "--rounds", "5", str(images[family]))
    report = result["report"]
    assert (report["way"], report["ranks"]) == ("MPI", 2)
    assert [row["bytes"] for row in report["rows"]] == [8, 64, 512, 4096, 32768, 262144, 1 << 20]
    assert report["best_bandwidth"] > 0
    assert result["verdict"]["level"] == "unknown"
    assert "memory of one host" in result["verdict"]["sentence"]


def test_bench_refuses_what_the_image_lacks(runner: Runner, images: dict[str, Path]) -> None:
    done = runner.run("bench", "allreduce", "--way", "gloo", "--tasks", "2", str(images["mpich"]))
    assert done.returncode == 93
    assert "--way gloo is not possible: the image has no torch" in done.stderr
    assert "possible here: mpi" in done.stderr


TORCH = """
import os, sys, time, types

__version__ = "0.0.hanging"
device = lambda *words: None


class Data:
    def __init__(self, *_, **__): pass
    def __getitem__(self, _): return 0.001
    def __ne__(self, _): return self
    def fill_(self, _): pass
    def sum(self): return 0


zeros = tensor = Data


def hang():
    print("about to hang", flush=True)
    time.sleep(3600)


done = []
barrier = lambda: hang() if len(done) == BARRIERS else done.append(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed = sys.modules["torch.distributed"] = types.SimpleNamespace(
    all_reduce=lambda *words, **named: None, barrier=barrier, ReduceOp=types.SimpleNamespace(MAX=0),
    get_rank=lambda: rank, get_world_size=lambda: size,
    init_process_group=BEGIN, destroy_process_group=hang,
)
"""


@pytest.mark.parametrize("is_done", [True, False], ids=["at-the-end", "at-the-beginning"])
def test_bench_allreduce_by_a_library_that_hangs(runner: Runner, is_done: bool) -> None:
    """At its end, in the last barrier, the result is there; before it there is a limit, and what the ranks said."""
    package = runner.home / f"hanging-{is_done}/torch"
    package.mkdir(parents=True)
    hang, go_on = "lambda *_: hang()", "lambda *_: None"
    text = TORCH.replace("BEGIN", go_on if is_done else hang).replace("BARRIERS", "4")  # one for each size
    (package / "__init__.py").write_text(text)
    words = ("--way", "gloo", "--tasks", "2", "--bytes", "1K", "--rounds", "1", "--warm-up", "0", "--repeats", "1")
    done = runner.run(
        *("bench", "allreduce", *words, "--json", "--timeout", "60" if is_done else "10"),
        *("--env", f"PYTHONPATH={package.parent}"),
    )
    if is_done:
        assert done.returncode == 0, done.stderr
        assert [row["bytes"] for row in json.loads(done.stdout)["report"]["rows"]] == [8, 64, 512, 1024]
    else:
        problem = json.loads(done.stdout)
        assert_reads(problem["message"], "bench/measurement-did-not-end-within", 10)
        assert "about to hang" in problem["context"]["said"]


def test_bench_allreduce_by_gloo(runner: Runner) -> None:
    """Through torch, in a container of the host's own root."""
    (packages,) = require_tool("learning").parent.glob("lib/python3*/site-packages")
    words = ("--way", "gloo", "--tasks", "2", "--bytes", "32K", "--rounds", "3", "--env", f"PYTHONPATH={packages}")
    words += ("--timeout", "120")  # before pytest's own, which would not say where it hangs
    report = bench(runner, "allreduce", *words)["report"]
    assert (report["way"], report["ranks"]) == ("Gloo", 2)
    assert report["version"].startswith("torch 2.")  # which one depends on the Python of the tests
    assert [row["bytes"] for row in report["rows"]] == [8, 64, 512, 4096, 32768]
    assert not any(row["wrong"] for row in report["rows"])
