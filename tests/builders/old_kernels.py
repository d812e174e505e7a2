# SPDX-License-Identifier: BSD-3-Clause
"""A kernel that can less: a module that Python loads at its start lets single calls of kedge fail."""

from __future__ import annotations

import os
from pathlib import Path

from tests.programs import read_program

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
