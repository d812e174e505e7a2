# SPDX-License-Identifier: BSD-3-Clause
"""Files that kedge 0.1 left in a home work with this kedge: `tests/golden/yesterday.json` has them.

They were written by kedge at 21911d07, with every module still where 0.1 had it: settings, a build, `submit` of a job
that ended, of one that waited and of an Executor's call that waited, and an instance. In the texts @PLACE@ and its kind
stand for what differs from host to host. Shims of 0.1 are in `test_shim.py`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to
from tests.requirements import REPOSITORY

SAVED = REPOSITORY / "tests/golden/yesterday.json"
INSTANCE = "home/.local/state/kedge/instances/@HOST@/web.json"


@pytest.fixture(scope="module")
def home(runner: Runner, image: str) -> Runner:
    """The saved files in the home of an ordinary user, as if they had been written a moment ago."""
    meanings = {
        "@PLACE@": str(runner.folder),
        "@HOST@": socket.gethostname().partition(".")[0],
        "@USER@": str(runner.uid),
        "@PYTHON@": sys.executable,
        "@KEDGE@": str(Path(sys.executable).with_name("kedge")),
        "@SOURCE@": str(REPOSITORY / "src"),
        "@IMAGE@": image,
    }

    def fill_in(text: str) -> str:
        text = re.sub(r"@NOW([-+]\d+)@", lambda found: str(int(time.time()) + int(found[1])), text)
        return re.sub("|".join(meanings), lambda found: meanings[found[0]], text)

    for name, content in json.loads(SAVED.read_text()).items():
        path = runner.folder / fill_in(name)
        if name == INSTANCE:
            continue  # its process is of another day: the test of instances brings it up to date
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(fill_in(content))
        elif "link" in content:
            path.symlink_to(content["link"])
        else:
            path.write_bytes(base64.b64decode(content["bytes"]))
    private = runner.home / ".local/state/kedge"
    for path in (private, *private.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
    give_to(runner, runner.folder)
    return runner


def test_settings_hold(home: Runner) -> None:
    assert home.read("config", "get", "threads") == "2\n"


def test_step_of_a_build_is_not_done_again(home: Runner) -> None:
    done = home.run("build", "out.sif", "Dockerfile", cwd=home.folder / "project")
    assert done.returncode == 0, done.stderr
    assert "1 step, 1 cached" in done.stdout + done.stderr


def test_job_that_ended_is_known(home: Runner) -> None:
    assert "completed" in home.read("status", "--site", "local", "1")
    assert home.read("logs", "--site", "local", "1") == "from job\n"


def test_recorded_run_runs_again(home: Runner) -> None:
    done = home.run("rerun", "--anyway", "ended-1.out.record.json", cwd=home.folder / "project")
    assert (done.returncode, done.stdout) == (0, "from job\n"), done.stderr


def test_jobs_that_waited_run(home: Runner) -> None:
    done = home.run("wait", "--site", "local", "3", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home.folder / "project/waited.txt").read_text() == "waited\n"
    (call,) = (home.home / ".local/state/kedge/jobs/calls").iterdir()
    assert (call / "result").exists(), (call / "output").read_text()


def test_instance_is_joined_and_ended(home: Runner, image: str) -> None:
    home.read("instance", "start", image, "web")
    (path,) = (home.home / ".local/state/kedge/instances").glob("*/web.json")
    now = json.loads(path.read_text())
    saved = json.loads(re.sub(r"@NOW.*?@", "0", json.loads(SAVED.read_text())[INSTANCE]))
    its_own = ("pid", "start", "machine", "image", "kind", "log_out", "log_err", "since")
    saved.update({name: now[name] for name in its_own})
    path.write_text(json.dumps(saved))
    os.chown(path, home.uid, home.uid)
    assert home.read("exec", "instance://web", "echo", "joined") == "joined\n"
    assert "web" in home.read("instance", "list")
    home.read("instance", "stop", "web")
    assert "web" not in home.read("instance", "list")
