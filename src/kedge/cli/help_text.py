# SPDX-License-Identifier: BSD-3-Clause
"""What `--help` says around the options: a sentence, examples, and the guide; one screen of it for containers."""

from __future__ import annotations

import argparse
import textwrap

from kedge.cli.examples import list_examples
from kedge.cli.options import find_subcommands
from kedge.cli.topics import find_guide
from kedge.container.flags import USAGES
from kedge.container.options import FLAGS, Flag

_COLUMNS, _INDENT = 80, 26
_COMMON = ("nv", "rocm", "bind", "env", "pwd", "writable-tmpfs", "overlay", "fakeroot", "containall", "dry-run")


def describe_parser(parser: argparse.ArgumentParser, command: str, summary: str) -> None:
    """Let the help of a verb and of its subcommands open with a sentence and examples, and end with the guide."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "\n".join([f"{summary}.", *_show_examples(command)])
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


def _show_examples(command: str) -> list[str]:
    """The examples of a command below their title, or nothing."""
    lines = list_examples(command)
    return ["", "examples:", *(f"  {line}" for line in lines)] if lines else []


def format_short_help(verb: str, command: str, summary: str) -> str:
    """The help of a verb of the flag table; `command` is what the user types, such as `instance start`."""
    flags = {flag.names[0]: flag for flag in FLAGS if verb in flag.verbs}
    lines = [f"usage: {USAGES[verb].replace('instance start', command)}", "", f"{summary}.", "", "examples:"]
    lines += [f"  {line}" for line in list_examples(command.split(maxsplit=1)[0])]
    lines += ["", "most used options, before the image:"]
    for name in _COMMON:
        if name in flags:
            lines += _show_flag(flags[name])
    lines += ["", f"All options: kedge {command} --help-all. Guide: kedge help run"]
    return "\n".join(lines) + "\n"


def _show_flag(flag: Flag) -> list[str]:
    """A flag and the first clause of its text."""
    names = f"{'-' + flag.short + ',' if flag.short else '':<3} --{flag.names[0]} {flag.metavar}".rstrip()
    begin = f"  {names}".ljust(_INDENT)
    text = flag.help.partition(";")[0]
    return textwrap.wrap(text, _COLUMNS, initial_indent=begin, subsequent_indent=" " * _INDENT) or [begin]
