# SPDX-License-Identifier: BSD-3-Clause
"""Images for notebooks: Python alone, and Python with JupyterLab, from this host and what PyPI gave."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.builders.containers import Runner
from tests.builders.learning_images import add_libraries, link_file
from tests.builders.pypi_tools import require_tool
from tests.requirements import open_way

_PROGRAMS = "/usr/bin/python3,sh,cat"
_UNUSED = shutil.ignore_patterns("third_party", "zoneinfo", "tests")  # half of all files


def require_jupyter() -> Path:
    """The directory of the programs jupyter, jupyter-lab and python, the same for all tests; skips without PyPI."""
    return require_tool("jupyter", "jupyterlab", "nbconvert")


def make_plain_image(runner: Runner) -> Path:
    """A sandbox with Python, without ipykernel."""
    image = runner.home / "plain"
    runner.read("pull", "--sandbox", str(image), f"host:{_PROGRAMS}")
    add_libraries(image)
    open_way(image)
    return image


def make_lab_image(runner: Runner) -> Path:
    """A sandbox with JupyterLab and ipykernel, where pip of a distribution puts them."""
    prefix = require_jupyter().parent
    image = runner.home / "lab"
    runner.read("pull", "--sandbox", str(image), f"host:{_PROGRAMS}")
    add_libraries(image)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    place = image / "usr/local/lib" / packages.parent.name / "dist-packages"
    shutil.copytree(packages, place, copy_function=link_file, ignore=_UNUSED, dirs_exist_ok=True)
    shutil.copytree(prefix / "share/jupyter", image / "usr/local/share/jupyter", copy_function=link_file)
    open_way(image)
    return image
