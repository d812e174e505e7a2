# SPDX-License-Identifier: BSD-3-Clause
"""The shims of this checkout, in a directory that a runner's user can reach."""

from __future__ import annotations

import sys
from pathlib import Path

from kedge.frozen import replace
from kedge.runtime.command_line.shim_file import PROGRAMS, make_shim
from tests.builders.containers import Runner
from tests.requirements import REPOSITORY


def write_shims(folder: Path, python: str = sys.executable) -> Path:
    """Write them as `kedge shim install` does; returns the directory, for PATH."""
    folder.mkdir(exist_ok=True)
    for program in PROGRAMS:
        path = folder / program
        path.write_text(make_shim(program, python, str(REPOSITORY / "src")))
        path.chmod(0o755)
    return folder


def with_shim(runner: Runner, program: str = "apptainer") -> Runner:
    """The same user, who types `apptainer` or `singularity`."""
    return replace(runner, program=(str(write_shims(runner.folder / "shims") / program),))
