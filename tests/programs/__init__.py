# SPDX-License-Identifier: BSD-3-Clause
"""Programs that tests start in a process of their own, each a file."""

from __future__ import annotations

from pathlib import Path


def read_program(name: str) -> str:
    """The text of a program, for `python -c` or to be written where a test needs it."""
    return (Path(__file__).parent / f"{name}.py").read_text()
