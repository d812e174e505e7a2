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
from tests.builders.images import kedge

WHY = "it will never begin: job 1 did not end as it wants"
PROGRAM = """
import sys, kedge
def work(): pass
if __name__ == "__main__":
    with kedge.Executor(site="local", python=sys.executable, after=["1"]) as executor:
        problem = executor.submit(work).exception(60)
        print(type(problem).__name__, problem.context["why"])
        problem.hint and kedge.job(problem.hint.split("'")[1].split()[-1], site="local").cancel()
"""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, object]:
    environment = {"HOME": str(tmp_path), "KEDGE_LOCAL_GPUS": "0", "KEDGE_LOCAL_QUEUE": str(tmp_path / "queue")}
    found: dict[str, object] = {"cache": tmp_path / "store", "environment": environment, "cwd": tmp_path}
    kedge("submit", "--wait", "--site", "local", "-", "false", check=False, **found)  # type: ignore[arg-type]
    return found


def test_stuck_jobs_end_every_wait(options: dict[str, object]) -> None:
    words = ("--site", "local", "--after", "afterok:1", "-", "true")
    waited = kedge("submit", "--wait", *words, check=False, **options)  # type: ignore[arg-type]
    assert waited.returncode == JobStuck.exit_code
    assert "the job 2 (true) never begins by itself: 2 held" in waited.stderr
    for verb in (("wait",), ("wait", "2", "1"), ("logs", "-f")):
        done = kedge(verb[0], "--site", "local", *verb[1:], check=False, **options)  # type: ignore[arg-type]
        assert done.returncode == JobStuck.exit_code, done.stderr
        assert WHY in done.stderr
    shown = kedge("status", "--site", "local", **options).stdout  # type: ignore[arg-type]
    assert f"  held, and never begins by itself\n    {WHY}" in shown
    told = json.loads(kedge("status", "--json", "--site", "local", **options).stdout)  # type: ignore[arg-type]
    assert told["tasks"][0]["stuck"] is True


def test_stuck_jobs_fail_their_futures(options: dict[str, object], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**options["environment"], "PATH": os.environ["PATH"]}  # type: ignore[dict-item]
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.startswith(f"JobStuck {WHY}"), done.stderr
    assert done.returncode == 0, done.stderr
