# SPDX-License-Identifier: BSD-3-Clause
"""The shims of this checkout, in a directory that a runner's user can reach."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kedge.base.frozen import replace
from kedge.container.shim_file import ALL_PROGRAMS, PROGRAMS, make_shim
from tests.builders.containers import Runner
from tests.requirements import REPOSITORY


def write_shims(folder: Path, programs: Sequence[str] = PROGRAMS, python: str = sys.executable) -> Path:
    """Write them as `kedge shim install` does; returns the directory, for PATH."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        path = folder / program
        path.write_text(make_shim(program, python, str(REPOSITORY / "src")))
        path.chmod(0o755)
    return folder


def with_shim(runner: Runner, program: str = "apptainer") -> Runner:
    """The same user, who types `apptainer`, `docker` or another of the names."""
    return replace(runner, program=(str(write_shims(runner.folder / "shims", ALL_PROGRAMS) / program),))
