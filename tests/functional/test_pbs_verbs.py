# SPDX-License-Identifier: BSD-3-Clause
"""Every verb for jobs on a site with PBS, whose programs are played (tests/fakes/pbs) after the real ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.waiting import wait_until
from tests.builders.warm_kedge import run_kedge
from tests.fakes.pbs import end_all, make_environment

HOSTILE = [
    *("a b", "it's", '"q"', "$(id)", "`id`", "\\", "two\n#PBS -N x\nlines", "é日本🎉", "*", "%j", "", "#x", "-n", "!")
]
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NOTE'], os.environ['KEDGE_JOB_NAME']]))"
PATIENCE = 60.0


class Site:
    """A login node of a site with PBS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.work, self.state = folder / "home", folder / "work", folder / "pbs"
        for each in (self.home, self.work):
            each.mkdir()
        base = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "KEDGE_SITE": "generic-pbs"}
        self.environment = make_environment(self.state, base)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **variables}
        try:
            return run_kedge([*words], environment=environment, folder=self.work, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            fault = self.state / "runner.err"  # of the process that plays PBS, without which no job goes on
            said = fault.read_text() if fault.exists() else "nothing"
            pytest.fail(f"kedge {' '.join(words)} did not end within {PATIENCE:.0f} s; the played PBS says: {said}")

    def read(self, *words: str, **variables: str) -> str:
        done = self.run(*words, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def until_told(self) -> str:
        """What a job does until `tell` is called."""
        return f"until [ -e {self.folder}/told ]; do sleep 0.05; done"

    def tell(self) -> None:
        (self.folder / "told").touch()

    def submit(self, *words: str) -> str:
        return self.read("submit", *words).strip()

    def status(self, job: str, **variables: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.read("status", "--json", job, **variables))["tasks"]
        return found

    def wait_until(self, job: str, state: str) -> None:
        end = time.monotonic() + PATIENCE
        while {each["state"] for each in self.status(job)} != {state}:
            assert time.monotonic() < end, self.status(job)
            time.sleep(0.2)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    end_all(made.state)


def test_pbs_user_text_arrives_unchanged(site: Site) -> None:
    name, note = 'we/ird "n" it\'s $(id) `x` \\ # é日本\nsecond', "\n".join(HOSTILE)
    id = site.submit("--name", name, "--env", f"NOTE={note}", "-", sys.executable, "-c", SHOW, *HOSTILE)
    assert site.run("wait", id).returncode == 0
    assert json.loads(site.read("logs", id)) == [HOSTILE, note, name]


def test_pbs_job_is_followed_from_queue_to_end(site: Site) -> None:
    id = site.submit("--name", "first", "-t", "1h", "-", "sh", "-c", f"echo begun; {site.until_told}; exit 3")
    assert id == "1001.pbs1"
    site.wait_until(id, "running")
    assert "first" in site.read("jobs")
    assert site.read("logs", id) == "begun\n", "output is there while it runs"
    site.tell()
    done = site.run("wait", "1001")
    assert done.returncode != 0
    [ended] = site.status(id)
    assert (ended["state"], ended["exit_code"], ended["nodes"]) == ("failed", 3, "node001")
    assert (site.work / "first-1001.out").read_text() == "begun\n"


def test_pbs_array_with_holes_and_a_cancelled_task(site: Site) -> None:
    command = ("-", "sh", "-c", f"echo $KEDGE_ARRAY_INDEX; {site.until_told}")
    id = site.submit("-a", "3,5,7-9:2", "--name", "arr", *command)
    site.wait_until(id, "running")
    site.read("cancel", f"{id}_5")
    site.tell()
    site.run("wait", id)
    states = {each["index"]: each["state"] for each in site.status(id)}
    assert states == {3: "done", 5: "cancelled", 7: "done", 9: "done"}
    assert [(site.work / f"arr-1001_{index}.out").read_text().split()[0] for index in states] == ["3", "5", "7", "9"]


def test_pbs_tasks_that_were_cancelled_before_they_began(site: Site) -> None:
    id = site.submit("-a", "1-4%1", "--name", "arr", "-", "sh", "-c", site.until_told)
    wait_until("it runs", lambda: "running" in {each["state"] for each in site.status(id)}, every=0.2)
    for index in (3, 4):
        site.read("cancel", f"{id}_{index}")
    site.tell()
    assert site.run("wait", id).returncode != 0
    states = {each["index"]: each["state"] for each in site.status(id)}
    assert states == {1: "done", 2: "done", 3: "cancelled", 4: "cancelled"}


def test_pbs_signal_is_for_the_command(site: Site) -> None:
    """The shell that PBS starts around the script does not trap it."""
    command = 'trap "echo asked; exit 6" USR1; echo ready; for i in $(seq 300); do sleep 0.2; done'
    id = site.submit("--name", "asked", "-", "sh", "-c", command)
    output = site.work / "asked-1001.out"
    wait_until("it is ready", lambda: output.exists() and "ready" in output.read_text())
    site.read("cancel", "--signal", "SIGUSR1", id)
    site.run("wait", id)
    assert output.read_text() == "ready\nasked\n"
    [ended] = site.status(id)
    assert (ended["state"], ended["exit_code"]) == ("failed", 6)


def test_pbs_dependencies(site: Site) -> None:
    first = site.submit("--name", "bad", "-", "false")
    well = site.submit("--after", f"afterok:{first}", "--name", "well", "-", "true")
    anyway = site.submit("--after", f"afterany:{first}", "--name", "anyway", "-", "true")
    site.run("wait", anyway)
    assert [each["state"] for each in site.status(anyway)] == ["done"]
    site.run("wait", well)
    assert [each["state"] for each in site.status(well)] == ["cancelled"]


def test_pbs_time_limit(site: Site) -> None:
    id = site.submit("-t", "1s", "-", "sleep", "60")
    site.run("wait", id)
    text = site.read("status", id)
    assert "time limit of 0:00:01" in text


def test_pbs_request_that_never_runs_is_explained_and_cancelled(site: Site) -> None:
    id = site.submit("--gpus", "9", "-", "true")
    assert "it can never run" in site.read("status", id)
    site.read("cancel", id)
    [ended] = site.status(id)
    assert ended["state"] == "cancelled"


def test_pbs_without_history_the_script_tells_how_it_was(site: Site) -> None:
    site.environment["FAKE_PBS_HISTORY"] = "off"
    id = site.submit("-", "sh", "-c", "exit 4")
    site.run("wait", id)
    [ended] = site.status(id)
    assert (ended["state"], ended["exit_code"]) == ("failed", 4)


def test_pbs_unknown_jobs_do_not_hide_others(site: Site) -> None:
    one, two = site.submit("-", "true"), site.submit("-", "true")
    for id in (one, two):
        site.run("wait", id)
    (site.state / "job-1001.json").unlink()
    assert two in site.read("jobs")


def test_pbs_refusals_are_shown(site: Site) -> None:
    done = site.run("submit", "--directive=-N 9x", "-", "true")
    assert done.returncode == 72
    assert "illegal -N value" in done.stderr
    assert site.read("jobs", "--json") is not None
