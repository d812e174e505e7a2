# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps and plots of `kedge bench` as an ordinary user: real ranks, and their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.builders.containers import Runner, warm_runner
from tests.builders.mpi_images import make_mpi_image
from tests.wording import assert_says

runner = warm_runner
ONCE = ("--warm-up", "0", "--repeats", "1")


@pytest.fixture(scope="module")
def ranks(runner: Runner) -> Path:
    return make_mpi_image(runner, "openmpi")


def read_texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).getroot() if element.tag.endswith("text")]


def test_sweep_of_ranks_is_one_table_one_file_and_one_plot(runner: Runner, ranks: Path) -> None:
    words = ("--ranks", "1,2", "--intervals", "100000", "--output", "pi.json", "--plot", "pi.svg", *ONCE)
    said = runner.read("bench", "pi", *words, str(ranks)).splitlines()
    assert said[0].split() == ["PI", "MEDIAN", "SPREAD", "SPEED-UP", "EFFICIENCY"]
    assert [line.split()[:2] for line in said[1:3]] == [["1", "rank"], ["2", "ranks"]]
    assert said[1].endswith("1.00      100 %")
    record = json.loads((runner.home / "pi.json").read_text())
    assert [figure["workers"] for figure in record["figures"]] == [1, 2]
    texts = read_texts(runner.home / "pi.svg")
    assert {"speed-up", "ranks", "ideal", "1", "2"} <= set(texts)


def test_sweep_as_json_has_speed_ups(runner: Runner, ranks: Path) -> None:
    words = ("pi", "--ranks", "1,2", "--intervals", "100000,200000", "--output", "1.json", "--json", *ONCE)
    result: dict[str, Any] = json.loads(runner.read("bench", *words, str(ranks)))
    points = {(point["work"], point["workers"]): point for point in result["scaling"]}
    assert sorted(points) == [
        ("100352 intervals", 1),
        ("100352 intervals", 2),
        ("200704 intervals", 1),
        ("200704 intervals", 2),
    ]
    medians = {(figure["work"], figure["workers"]): figure["median"] for figure in result["figures"]}
    for (work, workers), point in points.items():
        assert point["speed_up"] == pytest.approx(medians[work, 1] / medians[work, workers])
        assert point["efficiency"] == pytest.approx(point["speed_up"] / workers)


def test_sweep_of_an_allreduce_leaves_one_rank_out(runner: Runner, ranks: Path) -> None:
    words = ("allreduce", "--ranks", "1,2,3", "--bytes", "1K", "--rounds", "3", "--plot", "all.svg", *ONCE)
    done = runner.run("bench", *words, str(ranks))
    assert done.returncode == 0, done.stderr
    assert_says(done.stderr, "bench/run-ranks-measured-nothing-one")
    said = done.stdout
    assert "2 ranks 8 B" in said
    assert "3 ranks 1024 B" in said
    assert "\n1 rank" not in said
    assert {"MPI, 2 ranks", "MPI, 3 ranks", "bytes of the message"} <= set(read_texts(runner.home / "all.svg"))


def test_sweep_keeps_what_was_measured_when_a_run_fails(runner: Runner, ranks: Path) -> None:
    """This host has one node, so two are too many."""
    words = ("pi", "--nodes", "1,2", "--ranks", "2", "--intervals", "100000", "--output", "half.json", *ONCE)
    done = runner.run("bench", *words, "--json", str(ranks))
    assert done.returncode == 93, done.stderr
    assert_says(done.stderr, "bench/run-nodes-ranks-intervals-failed")
    assert [figure["workers"] for figure in json.loads(done.stdout)["figures"]] == [2]
    assert len(json.loads((runner.home / "half.json").read_text())["figures"]) == 1
    done = runner.run("bench", "pi", "--nodes", "2,3", str(ranks))
    assert done.returncode == 93
    assert done.stdout == ""


def test_allreduce_of_one_rank_has_nothing_to_plot(runner: Runner, ranks: Path) -> None:
    words = ("allreduce", "--ranks", "1", "--bytes", "1K", "--rounds", "3", "--plot", "one.svg", *ONCE)
    done = runner.run("bench", *words, str(ranks))
    assert done.returncode == 0, done.stderr
    assert_says(done.stderr, "bench/nothing-plot-one-rank-alone")
    assert not (runner.home / "one.svg").exists()


def test_sweep_numbers_are_checked_before_anything_runs(runner: Runner) -> None:
    for words in (("--ranks", "1,0"), ("--ranks", "2,,4"), ("--nodes", "a")):
        done = runner.run("bench", "pi", *words)
        assert done.returncode == 2, done.stderr
        assert_says(done.stderr, "launch/not-number-up")
    done = runner.run("bench", "pi", "--ranks", ",".join(map(str, range(1, 70))))
    assert done.returncode == 2
    assert_says(done.stderr, "bench/ask-runs-most-possible", 69, 64)


def test_a_job_of_a_comparison_submits_no_other(runner: Runner) -> None:
    done = runner.run("bench", "pi", "--on", "gpu", "/", env={"KEDGE_JOB_NAME": "bench-pi"})
    assert done.returncode == 2
    assert_says(done.stderr, "bench/submit-itself-again-again")
    assert not list(runner.home.glob("kedge-bench-*"))


def test_compare_takes_many_results(runner: Runner) -> None:
    """Three times one result: what differs, and by how much, is tests/unit/tools/bench/test_compare.py's."""
    if not (runner.home / "1.json").exists():
        test_sweep_as_json_has_speed_ups(runner, make_mpi_image(runner, "openmpi"))
    for name in ("2.json", "3.json"):
        (runner.home / name).write_bytes((runner.home / "1.json").read_bytes())
    said = runner.read("bench", "compare", "1.json", "2.json", "3.json", "--plot", "all.svg").splitlines()
    assert said[0].split() == ["PI", "RESULT", "MEDIAN", "RATIO", "SPREAD", "IT", "IS"]
    assert [line.split()[-6 if line.endswith("the spread") else 0] for line in said[1:2]] == ["1"]
    assert sum("2.json" in line for line in said[1:13]) == sum("3.json" in line for line in said[1:13]) == 4
    assert {"1.json 100352 intervals", "3.json 200704 intervals"} <= set(read_texts(runner.home / "all.svg"))
    found = json.loads(runner.read("bench", "compare", "1.json", "2.json", "3.json", "--json"))
    assert (found["first"], [each["name"] for each in found["comparisons"]]) == ("1.json", ["2.json", "3.json"])
    assert [len(each["figures"]) for each in found["comparisons"]] == [4, 4]


def test_plot_of_another_ending_is_refused_before_the_run(runner: Runner) -> None:
    done = runner.run("bench", "start", "--plot", "a.png", "/")
    assert done.returncode == 2
    assert_says(done.stderr, "bench/no-name-plot", "a.png")
    assert "end it with .svg" in done.stderr
