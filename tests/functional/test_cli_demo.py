# SPDX-License-Identifier: BSD-3-Clause
"""`make demo` shows what it says it shows, as an ordinary user. Needs the repository's own .venv."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.builders.containers import USER
from tests.requirements import REPOSITORY, require_program, require_root, require_user_namespaces
from tests.wording import assert_says

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


def judge(said: str, uid: int) -> Path:
    """The picture that the demo drew."""
    assert re.search(r"^pi\.sif \(.*, 3 steps, 0 cached, ", said, re.MULTILINE)
    assert re.search(r"^pi\.sif \(.*, 3 steps, 3 cached, ", said, re.MULTILINE)
    assert_says(said, "build/pi-sif-runs-machine")
    assert re.search(r'^Default command +exec python3 /opt/pi\.py "\$@"$', said, re.MULTILINE)
    assert_says(said, "compat/does-not-run-tesla-driver")
    assert_says(said, "run/pythonpath-not-passed-container")
    assert f"\n{uid}\nPYTHONPATH=[]\nexit code 7\n" in said
    assert "Job 1 (first): completed" in said
    assert "#SBATCH --partition=rtx" in said
    assert len(re.findall(r"^pi = 3\.141592654 \(1 process, ", said, re.MULTILINE)) == 2  # run, and the job's output
    assert re.search(r"^pi = 3\.141592654 \(2 ranks, ", said, re.MULTILINE)
    assert re.search(r"^warning: rank 1 on \S+ failed with status 1; the other ranks were ended$", said, re.MULTILINE)
    assert_says(said, "diagnose/cause-no-data-train")
    assert re.search(r"^start of a program +[\d.]+ ms +[\d.]+ ms$", said, re.MULTILINE)
    assert re.search(r"^  container, 2 ranks +█+ [\d.]+$", said, re.MULTILINE)
    found = re.search(r"^Picture: (.+\.svg)$", said, re.MULTILINE)
    assert found
    return Path(found[1])


def list_left_behind() -> set[str]:
    return {path.name for path in Path("/var/tmp").glob("kedge-demo.*")}


def become_user() -> list[str]:
    require_root()
    require_user_namespaces()
    user = str(USER)
    return [require_program("setpriv"), "--reuid", user, "--regid", user, "--clear-groups"]


def test_demo_runs_for_an_ordinary_user_and_leaves_nothing() -> None:
    before = list_left_behind()
    picture = judge(run_demo(*become_user(), home=Path("/nonexistent")), USER)
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    if not picture.is_relative_to(REPOSITORY):
        picture.unlink()
    assert list_left_behind() <= before


def test_demo_says_why_where_containers_are_forbidden() -> None:
    # a machine without user namespaces, played by the limit of a namespace around the demo
    forbid = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps -all --inh-caps -all "
    around = [require_program("unshare"), "--map-current-user", "--keep-caps", "sh", "-c", forbid + '"$0"']
    said = run_demo(*become_user(), *around, home=Path("/nonexistent"))
    assert_says(said, "run/cannot-create-container-host-user")
    assert "FS (Squashfs/*System/" in said
