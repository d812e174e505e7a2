# SPDX-License-Identifier: BSD-3-Clause
"""`make demo` shows what it says it shows, as root and as an ordinary user. Needs the repository's own .venv."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import USER
from tests.requirements import REPOSITORY, require_program, require_root, require_user_namespaces

DEMO = REPOSITORY / "scripts/demo"


def run_demo(*before: str, home: Path) -> str:
    """What the demo prints; `before` is what starts it as somebody else."""
    if not (REPOSITORY / ".venv/bin/kedge").exists():
        pytest.skip("the demo runs from .venv ('make venv' makes it)")
    # not the PATH of whoever tests: pip asks every rustc that it finds, and some leave files in the home directory
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "de_DE.UTF-8"}
    done = subprocess.run([*before, DEMO], env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def judge(said: str, uid: int) -> None:
    assert "org.label-schema.usage.singularity.deffile.bootstrap: host" in said  # inspect
    assert f"\n$ kedge exec demo.sif id -u\n{uid}\n" in said
    assert re.search(r"^Python 3\.\d+\.\d+ works in /", said, re.MULTILINE)
    assert "\nthe shell of demo.sif\n" in said
    assert "\n0.97\n" in said  # the bind
    assert "PYTHONPATH is not passed into the container" in said
    assert "PYTHONPATH is [], MODEL is [small]" in said
    assert "\nchanged\n" in said
    assert re.findall(r"^status (\d+)$", said, re.MULTILINE) == ["7", "255"]
    assert "create the directory session:/upper" in said  # the dry run
    assert "25.04-py3: does not run on Tesla V100 with driver 535.104.05: it has no kernels for that GPU" in said
    assert re.search(r"^nvcr\.io/nvidia/pytorch:\d\d\.\d\d-py3$", said, re.MULTILINE)  # recommend
    assert re.search(r"^\d+ checks, 0 problems", said, re.MULTILINE)  # doctor
    assert re.search(r"^process \d+ of the instance$", said, re.MULTILINE)
    assert re.search(r"^ten times .* took \d+ ms$", said, re.MULTILINE)


def list_left_behind() -> set[str]:
    return {path.name for path in Path("/var/tmp").glob("kedge-demo.*")}


def test_demo_runs_containers_and_leaves_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        require_user_namespaces()
    before = list_left_behind()
    judge(run_demo(home=tmp_path), os.geteuid())
    assert list_left_behind() <= before
    assert list(tmp_path.iterdir()) == []


def become_user() -> list[str]:
    require_root()
    require_user_namespaces()
    user = str(USER)
    return [require_program("setpriv"), "--reuid", user, "--regid", user, "--clear-groups"]


def test_demo_runs_for_an_ordinary_user() -> None:
    judge(run_demo(*become_user(), home=Path("/nonexistent")), USER)


def test_demo_says_why_where_containers_are_forbidden() -> None:
    # a machine without user namespaces, played by the limit of a namespace around the demo
    forbid = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps -all --inh-caps -all "
    around = [require_program("unshare"), "--map-current-user", "--keep-caps", "sh", "-c", forbid + '"$0"']
    said = run_demo(*become_user(), *around, home=Path("/nonexistent"))
    assert "cannot create a container on this host: user.max_user_namespaces is 0" in said
    assert "FS (Squashfs/*System/" in said
