# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of this machine's queue that never begin: all verbs that wait, `status` and Python say so at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.errors import JobStuck
from tests.builders.queue_user import QueueUser
from tests.programs import read_program
from tests.wording import assert_says

WHY = "it never starts: job 1 did not end as required"
PROGRAM = read_program("future_of_a_stuck_job")


@pytest.fixture
def user(tmp_path: Path) -> QueueUser:
    """Somebody whose first job has failed."""
    made = QueueUser(tmp_path)
    made.run("submit", "--wait", "--site", "local", "-", "false", check=False)
    return made


def test_stuck_jobs_end_every_wait(user: QueueUser) -> None:
    words = ("--site", "local", "--after", "afterok:1", "-", "true")
    waited = user.run("submit", "--wait", *words, check=False)
    assert waited.returncode == JobStuck.exit_code
    assert_says(waited.stderr, "submit/job-true-never-start-held", 2)
    for verb in (("wait",), ("wait", "2", "1"), ("logs", "-f")):
        done = user.run(verb[0], "--site", "local", *verb[1:], check=False)
        assert done.returncode == JobStuck.exit_code, done.stderr
        assert WHY in done.stderr
    shown = user.run("status", "--site", "local").stdout
    assert_says(shown, "submit/held-never-start", WHY)
    told = json.loads(user.run("status", "--json", "--site", "local").stdout)
    assert told["tasks"][0]["stuck"] is True


def test_stuck_jobs_fail_their_futures(user: QueueUser) -> None:
    program = user.folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**user.environment, "PATH": os.environ["PATH"]},
        cwd=user.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.startswith(f"JobStuck {WHY}"), done.stderr
    assert done.returncode == 0, done.stderr
