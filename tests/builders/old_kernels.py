# SPDX-License-Identifier: BSD-3-Clause
"""A kernel that can less: a module that Python loads at its start lets single calls of kedge fail; a filter lets all
calls that came after Linux 4.18 fail, for every program that is started below it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.programs import read_program
from tests.requirements import REPOSITORY

REFUSALS = read_program("refuse_calls_of_new_kernels")


def play_refusals(folder: Path, *calls: str, path: str | None = None) -> dict[str, str]:
    """The environment of a machine whose kernel refuses these; the module lies in `folder`.

    `path` is where else Python looks for modules, if not where the tests do.
    """
    place = folder / "site"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(REFUSALS)
    return {
        "PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '') if path is None else path}".rstrip(":"),
        "REFUSED": ",".join(calls),
    }


def below_4_18(words: list[str]) -> list[str]:
    """A command line that runs with the system calls of Linux 4.18, RHEL 8's; root's alone."""
    return [sys.executable, str(REPOSITORY / "tests/programs/refuse_calls_after_4_18.py"), *words]
