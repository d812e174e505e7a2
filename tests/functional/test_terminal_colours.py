# SPDX-License-Identifier: BSD-3-Clause
"""Colours on a terminal, and nowhere else: a pty shows both."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fakes.terminal import run_on_terminal

PROGRAM = """
from kedge.cli.console import Console
from kedge.cli.options import GlobalOptions
console = Console(GlobalOptions(json={json}))
console.print(f"the job {{console.paint('failed', 'failed')}} \\033[31mfalse\\033[0m")
console.print_table(("job", "state"), [("1", console.paint("completed", "completed")), ("2", "other")])
console.progress.warn("careful")
console.progress.note("verified", meaning="good")
"""
ESCAPE = "\033["


def show(*, is_terminal: bool, json: bool = False, **variables: str) -> str:
    """What the program writes to a terminal, or into a pipe."""
    argv = [sys.executable, "-c", PROGRAM.format(json=json)]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **variables}
    if "NO_COLOR" not in variables:
        environ.pop("NO_COLOR", None)
    if not is_terminal:
        return subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout
    status, shown = run_on_terminal(argv, environ)
    assert status == 0, shown
    return shown


def test_terminal_gets_colours_that_kedge_chose_alone() -> None:
    shown = show(is_terminal=True)
    assert "the job \033[1;31mfailed\033[0m \\x1b[31mfalse\\x1b[0m" in shown
    assert "\033[32mcompleted\033[0m" in shown
    assert "\033[33mwarning: \033[0mcareful" in shown
    assert "\033[32mverified\033[0m" in shown


def test_pipe_gets_no_colours() -> None:
    shown = show(is_terminal=False)
    assert "the job failed \033[31mfalse" in shown  # as it is: what reads a pipe is no terminal
    assert "completed" in shown
    assert "\033[32m" not in shown


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_terminal_without_colours_gets_none(variables: dict[str, str]) -> None:
    shown = show(is_terminal=True, **variables)
    assert ESCAPE not in shown
    assert "the job failed \\x1b[31mfalse" in shown


def test_json_has_no_colours() -> None:
    assert ESCAPE not in show(is_terminal=True, json=True).replace("\033[33mwarning: \033[0m", "")
