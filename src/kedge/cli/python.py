# SPDX-License-Identifier: BSD-3-Clause
"""`kedge python`: the Python that runs kedge, with kedge as a package. The head of a bundle does it itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the words for help, completion and the reference page: they are Python's."""
    import argparse

    parser.add_argument("words", metavar="ARG", nargs=argparse.REMAINDER, help="options and arguments of Python")


def run_words(verb: str, words: Sequence[str], *, leading: Sequence[str]) -> int:
    """Become Python; returns where it cannot be started."""
    del verb, leading
    from kedge.cli.main import make_parser
    from kedge.cli.options import GlobalOptions
    from kedge.cli.report import report_failure
    from kedge.system.spawn import replace_process
    from kedge.system.start_kedge import own_python

    try:
        if list(words) in (["--help"], ["-h"]):
            from kedge.cli.console import Console

            Console(GlobalOptions()).print(make_parser("python").format_help().rstrip("\n"))
            return 0
        command = own_python(*words)
        replace_process(command[0], command, os.environ)
    except Exception as problem:
        return report_failure(problem, ["python", *words], GlobalOptions())


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Not used: the words are read by `run_words`."""
    del console
    return run_words("python", arguments.words, leading=())
