# SPDX-License-Identifier: BSD-3-Clause
"""What `--help` says around the options: a sentence, examples, and the guide; one screen of it for containers."""

from __future__ import annotations

import argparse

from kedge.cli.examples import list_examples
from kedge.cli.options import find_subcommands
from kedge.cli.topics import find_guide


def describe_parser(parser: argparse.ArgumentParser, command: str, summary: str) -> None:
    """Let the help of a verb and of its subcommands open with a sentence and examples, and end with the guide."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "\n".join([f"{summary}.", *show_examples(command)])
    guide = find_guide(command.split(maxsplit=1)[0])
    if guide:
        parser.epilog = f"{parser.epilog or ''}guide: kedge help {guide}"
    summaries = {
        choice.dest: str(choice.help)
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }
    for name, child in find_subcommands(parser).items():
        if name in summaries:  # the others are aliases
            describe_parser(child, f"{command} {name}", f"{summaries[name][:1].upper()}{summaries[name][1:]}")


def show_examples(command: str) -> list[str]:
    """The examples of a command below their title, or nothing."""
    lines = list_examples(command)
    return ["", "examples:", *(f"  {line}" for line in lines)] if lines else []
