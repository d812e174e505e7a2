# SPDX-License-Identifier: BSD-3-Clause
"""Scripts of definition files looked at from outside: their lines, their indent, and whether they are one command."""

from __future__ import annotations

import re
import shlex
import textwrap

from kedge.builds.definition.definition import Script

_SIMPLE_WORD = r"""(?:[A-Za-z0-9_./:=+,@%^-]|"[^"$`\\]*"|'[^']*')+"""
_EXEC = re.compile(
    r"""(?:\[ "\$\#" -gt 0 \] \|\| set -- (?P<defaults>.*)\n)?(?:exec[ \t]+)?(?P<program>.*?)[ \t]*"?\$@"?"""
)


def remove_indent(text: str) -> str:
    """The lines without the blanks that all of them begin with."""
    return textwrap.dedent(text.expandtabs(4) if text.startswith("\t") and "<<-" not in text else text)


def is_one_command(script: str) -> bool:
    """Whether the text is one logical line without comments or documents in it."""
    lines = script.split("\n")
    if any(line.lstrip().startswith("#") or not line.strip() for line in lines) or "<<" in script:
        return False
    return all(re.search(r"(?<!\\)\\$", line) for line in lines[:-1]) and not lines[-1].endswith("\\")


def find_delimiter(text: str) -> str:
    """A word for a heredoc that is no line of the text."""
    number = 0
    while f"EOF{number or ''}" in text.split("\n"):
        number += 1
    return f"EOF{number or ''}"


def join_lines(script: Script) -> list[tuple[int, str]]:
    """Logical lines with their numbers."""
    joined: list[tuple[int, str]] = []
    pending = ""
    for number, line in enumerate(script.script.split("\n"), script.line + 1):
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            pending += line[:-1]
            continue
        joined.append((number, pending + line))
        pending = ""
    return [*joined, (script.line, pending)] if pending else joined


def read_exec(text: str) -> dict[str, list[str]]:
    """ENTRYPOINT and CMD of `exec PROGRAM "$@"`, with a line for default arguments; nothing for other scripts."""
    match = _EXEC.fullmatch(text)
    if not match:
        return {}
    commands = {"ENTRYPOINT": match["program"], "CMD": match["defaults"]}
    chosen = {}
    for key, words in commands.items():
        if words:
            if not re.fullmatch(rf"(?:{_SIMPLE_WORD}(?:[ \t]+|$))+", words):
                return {}
            chosen[key] = shlex.split(words)
    return chosen
