# SPDX-License-Identifier: BSD-3-Clause
"""Jobs are found whatever site they were submitted to, by lines that can be copied; and what is said right after."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.builders.queue_user import QueueUser
from tests.builders.waiting import wait_until
from tests.wording import assert_says

FAKE_SLURM = """#!/bin/sh
case "$0" in
*/sbatch) echo 7 ;;
*/squeue) ;;
*) exit 1 ;;
esac
"""
STEERING = "a\x1b]0;title\x07\x1b[31mb\rc"


class User(QueueUser):
    """Somebody on a machine with Slurm's programs, who uses the local queue as well."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"):
            (programs / name).write_text(FAKE_SLURM)
            (programs / name).chmod(0o755)
        super().__init__(folder, PATH=f"{programs}:{os.environ['PATH']}")


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def assert_status(user: User, name: str, site: str, *words: str) -> None:
    shown = user.run("status", *words).stdout
    assert name in shown.splitlines()[0]
    assert f"\n  site: {site}\n" in shown


def test_advice_after_submit_can_be_copied(user: User) -> None:
    done = user.run("submit", "--site", "local", "-", "echo", "hello")
    first = done.stderr.splitlines()[0]
    assert first == "Submitted job 1 (echo) to local. Follow it: kedge logs -f --site local 1"
    assert user.read(*first.partition(": kedge ")[2].split()) == "hello\n"
    assert_status(user, "Job 1 (echo): completed", "local")


def test_advice_after_a_failure_can_be_copied(user: User) -> None:
    user.run("submit", "--site", "local", "-", "sh", "-c", "echo mine; exit 3")
    waited = user.run("wait", "--site", "local", "1", check=False)
    [line] = re.findall(r"see its output: (kedge logs .+)", waited.stderr)
    assert line == "kedge logs --site local 1"
    assert user.run(*line.split()[1:]).stdout == "mine\n"


def test_verbs_find_a_job_of_another_site(user: User) -> None:
    user.run("submit", "--site", "local", "-J", "mine", "-", "echo", "hello")
    for word in ("mine", "1", "last"):
        user.run("wait", word)
        assert_status(user, "1 (mine)", "local", word)
        assert user.run("logs", word).stdout == "hello\n"
        assert "had already ended" in user.run("cancel", word).stdout
    refused = user.run("status", "--site", "generic-slurm", "mine", check=False)  # who names a site means it
    assert refused.returncode != 0


def test_tasks_of_an_array_on_another_site_are_found(user: User) -> None:
    user.run("submit", "--wait", "--site", "local", "--array", "1-2", "-", "sh", "-c", "echo task $KEDGE_ARRAY_INDEX")
    assert user.run("logs", "1_2").stdout == "task 2\n"
    assert [each["index"] for each in json.loads(user.run("status", "--json", "1_2").stdout)["tasks"]] == [2]


def test_status_alone_is_about_the_job_that_was_submitted_last(user: User) -> None:
    user.run("submit", "-J", "first", "-t", "5m", "-", "true")
    user.run("submit", "--site", "local", "-J", "second", "-", "true")
    assert_status(user, "(second)", "local")
    user.run("submit", "-J", "third", "-t", "5m", "-", "true")
    assert_status(user, "7 (third)", "generic-slurm")


def test_jobs_from_before_a_profile_are_found_by_name(user: User) -> None:
    user.run("submit", "-J", "before", "-t", "5m", "-", "true")
    sites = user.folder / ".config/kedge/sites"
    sites.mkdir(parents=True)
    (sites / "mine.toml").write_text('title = "Mine"\nscheduler = "slurm"\n')
    user.environment["KEDGE_SITE"] = "mine"
    assert "7 (before)" in user.run("status", "before").stdout


def test_jobs_of_several_sites_are_not_cancelled_at_once(user: User) -> None:
    user.run("submit", "--site", "local", "-J", "here", "-", "sleep", "60")
    user.run("submit", "-J", "there", "-t", "5m", "-", "true")
    refused = user.run("cancel", "here", "there", check=False)
    assert_says(refused.stderr, "submit/jobs-different-sites-local-generic-slurm")
    assert user.run("cancel", "here").stdout.startswith("Cancelled job ")


def test_a_job_that_was_cancelled_is_not_running_any_more(user: User) -> None:
    user.run("submit", "--site", "local", "-J", "stubborn", "-", "sh", "-c", "trap '' TERM; touch on; sleep 60")
    wait_until("it runs", (user.folder / "on").exists)
    user.run("cancel", "stubborn")
    shown = user.run("status", "stubborn").stdout
    assert re.search(r": (being cancelled|cancelled)\b", shown, re.MULTILINE)
    listed = json.loads(user.run("jobs", "--json", "--site", "local").stdout)
    assert listed[0]["state"] in ("completing", "cancelled")


def test_names_of_jobs_do_not_steer_the_terminal_through_a_pipe(user: User) -> None:
    user.run("submit", "--site", "local", "-J", STEERING, "-", "sleep", "60")
    said = [user.run(*words).stdout for words in (("status",), ("jobs", "--site", "local"), ("cancel", "last"))]
    for text in said:
        assert "\\x1b" in text
        assert "\x1b" not in text
        assert "\r" not in text
    told = json.loads(user.run("status", "--json").stdout)
    assert told["name"] == STEERING  # programs get it as it is
