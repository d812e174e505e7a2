# SPDX-License-Identifier: BSD-3-Clause
"""The commands of a shell script in a recipe, as rules ask for them: program, options, what is piped where, places.

Functions, loops and branches are read as the commands in them. What a variable holds is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kedge.base.shell_text import Command, find_commands
from kedge.builds.step_values import RecipePlace

_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "time"))
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"\d*<<-?[^<]")
_TARGET = re.compile(r"\A(\d*(?:&>>?|>>|[<>]))([^<>&|])")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its words without quotes and redirections, the variables set for it, and the one it reads from."""

    words: tuple[str, ...]
    place: RecipePlace
    assignments: tuple[tuple[str, str], ...] = ()
    source: ShellCommand | None = None  # before a `|`
    redirects: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program, without its directory."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What stands behind the program."""
        return self.words[1:]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        return tuple(word for word in self.arguments if not word.startswith("-"))

    @property
    def text(self) -> str:
        """The command on one line."""
        return " ".join((*self.words, *self.redirects))

    def has_flag(self, letter: str, *longs: str) -> bool:
        """Whether a short option (also in `-yq`) or one of the long ones is given."""
        return any(
            argument in longs
            or argument.partition("=")[0] in longs
            or (letter and re.fullmatch(r"-[A-Za-z]+", argument) is not None and letter in argument)
            for argument in self.arguments
        )


def read_commands(text: str, locate: Callable[[int], RecipePlace]) -> list[ShellCommand]:
    """The commands of a script; `locate` gives the place of a character."""
    commands: list[ShellCommand] = []
    is_piped = False
    for found in find_commands(text.replace("\\\r\n", " \\\n")):  # a recipe from Windows is meant as it looks
        source = commands[-1] if is_piped and commands else None
        commands.append(_make_command(found, locate(found.position), source))
        is_piped = found.end in ("|", "|&")
    return commands


def _make_command(found: Command, place: RecipePlace, source: ShellCommand | None) -> ShellCommand:
    left = [word.text for word in found.words]
    assignments: list[tuple[str, str]] = []
    while left:
        assignment = _ASSIGNMENT.fullmatch(left[0])
        if left[0] in _KEYWORDS or left[0] in ("env", "exec", "command", "nice"):
            left.pop(0)
        elif left[0] == "sudo":
            left.pop(0)
            while left and left[0].startswith("-"):
                left.pop(0)
        elif assignment is not None:
            assignments.append((assignment[1], assignment[2]))
            left.pop(0)
        else:
            break
    redirects = tuple(_TARGET.sub(r"\1 \2", text) for text in found.redirects if not _HEREDOC.match(text))
    return ShellCommand(tuple(left), place, tuple(assignments), source, redirects)
