# SPDX-License-Identifier: BSD-3-Clause
"""Jobs leave a record of their run beside their output; `jobs --efficiency` and `rerun` read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.containers import Runner, each_role


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    for runner in each_role("user", is_warm=True):
        folder = runner.home / "queue"
        runner.environment.update(KEDGE_LOCAL_QUEUE=str(folder), KEDGE_LOCAL_GPUS="0", KEDGE_SITE="local")
        yield runner


def test_job_leaves_a_record_that_can_be_measured_and_repeated(runner: Runner, image: str) -> None:
    script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done"
    runner.read("submit", "--name", "count", "--time", "1h", "--mem", "1G", "--cpus-per-task", "2", image, "sh", "-c",
                script)  # fmt: skip
    assert runner.run("wait", "--timeout", "1m", "count").returncode == 0
    (place,) = runner.home.glob("count-*.out.record.json")
    record = json.loads(place.read_text())
    assert (record["exit"]["status"], record["job"]["scheduler"]) == (0, "local")
    assert record["usage"]["cpu_seconds"] > 0

    (found,) = json.loads(runner.read("jobs", "--efficiency", "--json"))
    assert (found["name"], found["cpus"], found["sources"]) == ("count", 2, ["record"])
    assert 0 < found["memory"] < found["memory_asked"] == 1 << 30
    assert found["enough"][:4] == ["--time", "5m", "--mem", "256M"]
    shown = runner.read("jobs", "--efficiency")
    assert "--time" in shown
    assert "1 job that ended" in shown

    done = runner.run("rerun", "count")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_tasks_of_an_array_have_records_of_their_own(runner: Runner, image: str) -> None:
    command = ("sh", "-c", "exit $KEDGE_ARRAY_INDEX")
    runner.read("submit", "--name", "many", "--array", "0-1", "--time", "5m", image, *command)
    assert runner.run("wait", "--timeout", "1m", "many").returncode != 0
    found = {Path(path).name.split(".")[-3]: json.loads(path.read_text()) for path in runner.home.glob("many*.json")}
    assert {index: record["exit"]["status"] for index, record in found.items()} == {"0": 0, "1": 1}
    measured = {each["id"].partition("_")[2]: each for each in json.loads(runner.read("jobs", "--efficiency", "--json",
                                                                                     "--name", "many"))}  # fmt: skip
    assert measured["1"]["enough"] == []  # it failed


def test_job_whose_record_has_no_place_runs_all_the_same(runner: Runner, image: str) -> None:
    runner.read("submit", "--name", "quiet", "--output", "/dev/null", "--time", "5m", image, "true")
    assert runner.run("wait", "--timeout", "1m", "quiet").returncode == 0
    (found,) = json.loads(runner.read("jobs", "--efficiency", "--json", "--name", "quiet"))
    assert found["sources"] == ["record"]  # with the job's own record
