# SPDX-License-Identifier: BSD-3-Clause
"""What the guides about jobs show works: kedge.toml is read, Python runs on the local queue.

Needs user namespaces, for containers.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kedge
from kedge.cluster.job_fields import BY_KEY
from kedge.jobs.description import parse_description
from tests.requirements import REPOSITORY, require_user_namespaces

GUIDES = REPOSITORY / "docs/guides"


def find_blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (GUIDES / page).read_text(), re.DOTALL)


def make_environment(place: Path, **more: str) -> dict[str, str]:
    """A user with a home of their own, whose jobs go to the local queue."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEDGE_", "XDG_", "SLURM_"))}
    place.mkdir(exist_ok=True)
    own = {"HOME": str(place), "KEDGE_SITE": "local", "KEDGE_NODEDIR": str(place / "node")}
    return {**kept, **own, "PYTHONPATH": str(REPOSITORY / "src"), **more}


def test_guide_descriptions_can_be_read() -> None:
    blocks = find_blocks("jobs.md", "toml")
    assert blocks
    for block in blocks:
        assert parse_description(block, Path("/project/kedge.toml")).names


@pytest.mark.parametrize(
    ("position", "shown"),
    [
        (0, ("done", "hello", "(failing) failed with exit code 3", "its script failed with exit code 3", "task 1")),
        (1, ("(0.1, 0.36787944117144233)", "[0.1, 0.2, 0.3]", "raised in the job: a rate of -1")),
    ],
)
def test_guide_python_runs(tmp_path: Path, position: int, shown: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        require_user_namespaces()
    script = tmp_path / "example.py"
    script.write_text(find_blocks("jobs-python.md", "python")[position])
    done = subprocess.run(
        [sys.executable, str(script)],
        env=make_environment(tmp_path / "home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in shown:
        assert text in done.stdout


def test_guide_python_names_keys_that_exist() -> None:
    calls = [node for block in find_blocks("jobs-python.md", "python") for node in ast.walk(ast.parse(block))]
    ours = [node for node in calls if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("kedge.")]
    names = {word.arg for node in ours for word in node.keywords if word.arg}
    assert len(ours) >= 6
    assert names <= {*BY_KEY, "site", "python"}


def test_guide_python_names_what_a_handle_has() -> None:
    page = (GUIDES / "jobs-python.md").read_text()
    table = page[page.index("a `JobHandle` has") : page.index("Each of `state`")]
    named = {name for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    assert len(named - {"JobHandle"}) >= 9
    assert not [name for name in named - {"JobHandle"} if not hasattr(kedge.JobHandle, name)]
