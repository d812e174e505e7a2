# SPDX-License-Identifier: BSD-3-Clause
"""Users' own code in a container: the paths of the current project are there, those of the host are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to, make_sandbox
from tests.requirements import REPOSITORY

SHOW = 'echo "[$PYTHONPATH] [$PYTHONNOUSERSITE]"'


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    folder = make_sandbox(runner.folder / "image")
    (folder / "usr/lib/python3.11").mkdir(parents=True)  # so that packages in ~/.local/lib/python3.11 matter
    return str(give_to(runner, folder))


@pytest.fixture(scope="module")
def project(runner: Runner) -> Path:
    for name in ("work/project/src", "work/project/.venv/lib/python3.11/site-packages", "host/lib", "other"):
        (runner.home / name).mkdir(parents=True)
    (runner.home / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    (runner.home / "work/project/pyproject.toml").touch()
    give_to(runner, runner.home)
    return runner.home / "work/project"


def list_paths(runner: Runner, project: Path) -> str:
    """Code of the project, of its virtual environment, of the host, and of kedge itself."""
    own = [project / "src", project / ".venv/lib/python3.11/site-packages", runner.home / "host/lib"]
    return ":".join(map(str, (*own, REPOSITORY / "src")))


def test_code_of_the_project_passes_and_that_of_the_host_does_not(runner: Runner, image: str, project: Path) -> None:
    env = {"PYTHONPATH": list_paths(runner, project), "KEDGE_KEEP": ""}
    done = runner.run("exec", image, "sh", "-c", SHOW, env=env, cwd=project)
    assert done.stdout == f"[{project}/src] [1]\n"
    assert f"PYTHONPATH ({project}/.venv" in done.stderr
    assert f"{runner.home}/host/lib" in done.stderr
    elsewhere = runner.run("exec", image, "sh", "-c", SHOW, env=env, cwd=runner.home / "other")
    assert elsewhere.stdout == "[] [1]\n"
