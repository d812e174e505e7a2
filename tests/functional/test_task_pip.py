# SPDX-License-Identifier: BSD-3-Clause
"""The pages about Python packages, run by an ordinary user with a real pip: blocks below `<!-- tool: pip -->`.

`pytorch.sif` is this host's Python with a torch that is numbered as NVIDIA does, and wheels in place of PyPI.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.containers import Runner, give_to
from tests.builders.documents import read_tool_files, read_tool_steps
from tests.builders.python_images import make_python_image, write_wheel
from tests.functional.test_docs import judge_step
from tests.requirements import REPOSITORY

pytestmark = pytest.mark.slow
PAGES = ("docs/tasks/pip.md", "docs/tasks/develop.md")  # in this order: the second uses the environment of the first
TORCH = "2.1.0a0+32f93b1.nv24.03"
PROJECT = {
    "pyproject.toml": """[project]
name = "mypackage"
version = "1"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
""",
    "src/mypackage/__init__.py": "",
}


@pytest.fixture(scope="module")
def work(runner: Runner) -> Path:
    """A project directory with the image and the files that the pages show."""
    image = make_python_image(runner)
    own = write_wheel(image / "own", "torch", TORCH)
    write_wheel(image / "wheels", "torch", "2.3.0")
    write_wheel(image / "wheels", "lightning", "2.0", requires=("torch>=2.0.0a0",))
    write_wheel(image / "wheels", "extra", "1.0", requires=("torch>=2.3",))
    (image / "etc/pip.conf").write_text(
        "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"
    )
    give_to(runner, image)
    install = ["python3", "-m", "pip", "install", "-q", f"/own/{own.name}"]
    runner.read("exec", "--fakeroot", "--writable", str(image), *install)
    folder = runner.home / "project"
    files = {
        **PROJECT,
        **{name: text for page in PAGES for name, text in read_tool_files(REPOSITORY / page, "pip").items()},
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    give_to(runner, folder)
    runner.read("convert", str(image), str(folder / "pytorch.sif"))
    return folder


def test_task_pip_commands_do_what_the_pages_show(runner: Runner, work: Path) -> None:
    kedge = runner.folder / "bin/kedge"
    kedge.parent.mkdir()
    kedge.write_text(f'#!/bin/sh\nexec {" ".join(runner.program)} "$@"\n')
    kedge.chmod(0o755)
    environment = runner.variables({"PATH": f"{kedge.parent}:/usr/bin:/bin"})
    environment.pop("PYTHONPATH", None)  # of the checkout
    environment.pop("KEDGE_KEEP", None)
    for page in PAGES:
        steps = read_tool_steps(REPOSITORY / page)["pip"]
        assert len(steps) >= 2
        for step in steps:
            judge_step(page, step, work, environment, runner.uid)
