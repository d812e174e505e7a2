# SPDX-License-Identifier: BSD-3-Clause
"""`kedge exec|run|shell|test|instance start --help`: one screen of examples and the options that most people use."""

from __future__ import annotations

import textwrap

from kedge.cli.examples import list_examples
from kedge.runtime.command_line.flag_table import FLAGS, Flag
from kedge.runtime.command_line.flags import USAGES

_COLUMNS, _INDENT = 80, 26
_COMMON = ("nv", "rocm", "bind", "env", "pwd", "writable-tmpfs", "overlay", "fakeroot", "containall", "dry-run")


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
