# SPDX-License-Identifier: BSD-3-Clause
"""The commands of a shell script, near enough for rules about them: words, what is piped where, and their places.

Quotes, continued lines, comments, heredocs and `$(…)` are understood; functions, loops and branches are read as the
commands in them. What a variable holds is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kedge.recipe.steps import RecipePlace

_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "time"))
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)\s*(['\"\\]?)([\w.-]+)")
_REDIRECT = re.compile(r"\d*(?:>>?|<|&>)")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its words without quotes, the variables set for it, and the one it reads from."""

    words: tuple[str, ...]
    place: RecipePlace
    assignments: tuple[tuple[str, str], ...] = ()
    source: ShellCommand | None = None  # before a `|`

    @property
    def program(self) -> str:
        """The name of the program, without its directory."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What stands behind the program; redirections are left out."""
        return tuple(word for word in self.words[1:] if not _REDIRECT.match(word))

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        return tuple(word for word in self.arguments if not word.startswith("-"))

    @property
    def text(self) -> str:
        """The command on one line."""
        return " ".join(self.words)

    def has_flag(self, letter: str, *longs: str) -> bool:
        """Whether a short option (also in `-yq`) or one of the long ones is given."""
        return any(
            argument in longs
            or argument.partition("=")[0] in longs
            or (letter and re.fullmatch(r"-[A-Za-z]+", argument) is not None and letter in argument)
            for argument in self.arguments
        )


@dataclass(slots=True)
class _Reader:
    text: str
    locate: Callable[[int], RecipePlace]
    position: int = 0
    words: list[str] = field(default_factory=list)
    start: int = 0
    heredocs: list[tuple[str, bool]] = field(default_factory=list)

    def read(self) -> Iterator[tuple[tuple[str, ...], int, str]]:
        """Words of each command, where it begins, and the operator behind it."""
        while self.position < len(self.text):
            operator = self._match_operator()
            if operator:
                yield from self._end(operator)
                self.position += len(operator)
                if operator == "\n":
                    self._skip_heredocs()
            elif self.text.startswith(("\\\n", "\\\r\n"), self.position):
                self.position = self.text.index("\n", self.position) + 1
            elif self.text[self.position].isspace():
                self.position += 1
            elif self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            else:
                self._take_word()
        yield from self._end("")

    def _match_operator(self) -> str:
        if self._is_redirect():
            return ""
        return next((operator for operator in _OPERATORS if self.text.startswith(operator, self.position)), "")

    def _end(self, operator: str) -> Iterator[tuple[tuple[str, ...], int, str]]:
        if self.words:
            yield tuple(self.words), self.start, operator
        self.words = []

    def _take_word(self) -> None:
        begun = self.position
        if not self.words:
            self.start = begun
        heredoc = _HEREDOC.match(self.text, begun)
        if heredoc is not None:
            self.heredocs.append((heredoc[3], bool(heredoc[1])))
            self.position = heredoc.end() + (1 if heredoc[2] in ("'", '"') else 0)
            return
        pieces: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            if character.isspace() or self._match_operator():
                break
            pieces.append(self._take_piece(character))
        self.words.append("".join(pieces))

    def _is_redirect(self) -> bool:
        """`>&`, `2>&1` and `&>` are no operators."""
        before, here = self.text[self.position - 1 : self.position], self.text[self.position : self.position + 2]
        return here == "&>" or (here[:1] == "&" and before in (">", "<"))

    def _take_piece(self, character: str) -> str:
        if character == "\\":
            self.position += 2
            return self.text[self.position - 1 : self.position].replace("\n", "")
        if character in "'\"":
            return self._take_quoted(character)
        if self.text.startswith("$(", self.position) or character == "`":
            return self._take_substitution(character)
        self.position += 1
        return character

    def _take_quoted(self, quote: str) -> str:
        end = self.position + 1
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if self.text[end] == "\\" and quote == '"' else 1
        content = self.text[self.position + 1 : end]
        self.position = end + 1
        return content

    def _take_substitution(self, character: str) -> str:
        begun = self.position
        if character == "`":
            end = self.text.find("`", begun + 1)
            self.position = len(self.text) if end < 0 else end + 1
            return self.text[begun : self.position]
        depth = 0
        while self.position < len(self.text):
            letter = self.text[self.position]
            depth += {"(": 1, ")": -1}.get(letter, 0)
            self.position += 1
            if letter == ")" and not depth:
                break
        return self.text[begun : self.position]

    def _skip_heredocs(self) -> None:
        for name, strips in self.heredocs:
            while self.position < len(self.text):
                end = self.text.find("\n", self.position)
                end = len(self.text) if end < 0 else end
                line = self.text[self.position : end].rstrip("\r")
                self.position = end + 1
                if (line.lstrip("\t") if strips else line) == name:
                    break
        self.heredocs = []


def read_commands(text: str, locate: Callable[[int], RecipePlace]) -> list[ShellCommand]:
    """The commands of a script; `locate` gives the place of a character."""
    commands: list[ShellCommand] = []
    piped = False
    for words, start, operator in _Reader(text, locate).read():
        source = commands[-1] if piped and commands else None
        commands.append(_make_command(words, locate(start), source))
        piped = operator in ("|", "|&")
    return commands


def _make_command(words: tuple[str, ...], place: RecipePlace, source: ShellCommand | None) -> ShellCommand:
    left = list(words)
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
    return ShellCommand(tuple(left), place, tuple(assignments), source)
