# SPDX-License-Identifier: BSD-3-Clause
"""The guides "Workflow tools" and "Notebooks", run: files and lines of each section, with tools from PyPI."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import Runner, as_user, give_to
from tests.builders.documents import read_tool_files, read_tool_steps
from tests.builders.pypi_tools import TOOLS, require_tool
from tests.builders.shims import write_shims
from tests.functional.test_docs import is_shown
from tests.requirements import REPOSITORY

pytestmark = pytest.mark.slow
PAGES = [REPOSITORY / f"docs/guides/{name}.md" for name in ("workflow-tools", "notebooks")]
STEPS = {tool: steps for page in PAGES for tool, steps in read_tool_steps(page).items()}


@pytest.fixture(scope="module")
def programs(runner: Runner) -> Path:
    """The shims, and kedge beside them."""
    folder = write_shims(runner.folder / "bin")
    kedge = folder / "kedge"
    kedge.write_text(f'#!/bin/sh\nexec {" ".join(runner.program)} "$@"\n')
    kedge.chmod(0o755)
    return folder


def test_guide_has_a_section_for_each_tool() -> None:
    assert set(STEPS) == set(TOOLS) - {"nf-core", "learning", "site", "training", "arrays"}


@pytest.mark.parametrize("tool", STEPS)
def test_guide_lines_work_with_the_tool_itself(tool: str, runner: Runner, programs: Path) -> None:
    own = require_tool(tool)
    folder = runner.home / tool
    for path, text in (each for page in PAGES for each in read_tool_files(page, tool).items()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    folder.mkdir(exist_ok=True)
    give_to(runner, folder)
    environ = runner.variables({"PATH": f"{programs}:{own}:/usr/bin:/bin", "USER": "me", "LANG": "C.UTF-8"})
    environ.pop("PYTHONPATH", None)  # of the checkout: no tool is to find it
    environ.pop("KEDGE_KEEP", None)
    for step in STEPS[tool]:
        done = subprocess.run(
            as_user(runner.uid, ["bash", "-c", step.command]),
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}"
        missing = [line for line in step.shown if not is_shown(line, done.stdout)]
        assert not missing, f"{step.command}\ndoes not show {missing}\nbut:\n{done.stdout}"
