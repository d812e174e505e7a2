# SPDX-License-Identifier: BSD-3-Clause
"""The lines of a Dockerfile put together: continuations joined, comments dropped, directives at the top obeyed.

Only the escape directive changes how a file is read. An unknown directive, an empty line or anything else ends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kedge.base.frozen import frozen
from kedge.builds.go_strings import SPACES
from kedge.builds.step_values import RecipePlace, refuse_recipe

LONGEST_LINE = 65536  # bytes with its end; BuildKit reads no longer ones
_DIRECTIVE = re.compile(r"([a-zA-Z][a-zA-Z0-9]*)[\t\n\f\r ]*=[\t\n\f\r ]*(.+?)[\t\n\f\r ]*", re.DOTALL)
_DIRECTIVES = ("syntax", "escape", "check")
_CONTINUED = {
    "\\": re.compile(r"(?:(?<=[^\\])|^)\\[ \t]*\Z"),
    "`": re.compile(r"(?:(?<=[^`])|^)`[ \t]*\Z"),
}


@frozen
class JoinedLine:
    """An instruction on one line, and where its pieces stand in the file."""

    text: str
    start: int
    end: int
    pieces: tuple[tuple[int, int, int], ...]  # offset in the text, line, column
    comments: tuple[str, ...] = ()
    has_gap: bool = False  # an empty line among those that continue it

    def locate(self, offset: int) -> tuple[int, int]:
        """Line and column of a character of the text."""
        place = self.pieces[0]
        for piece in self.pieces:
            if piece[0] > offset:
                break
            place = piece
        return place[1], place[2] + offset - place[0]


@dataclass(slots=True)
class LineReader:
    """Reads a file from the top; whoever finds a heredoc takes its lines from the same reader."""

    text: str
    name: str
    escape: str = "\\"
    directives: dict[str, str] = field(default_factory=dict)
    number: int = 0  # of the line read last
    _lines: list[str] = field(default_factory=list)
    _takes_directives: bool = True

    def __post_init__(self) -> None:
        lines = self.text.removeprefix("\ufeff").split("\n")
        self._lines = [f"{line}\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]

    def take(self) -> str | None:
        """The next line of the file with its end, or None."""
        if self.number >= len(self._lines):
            return None
        line = self._lines[self.number]
        self.number += 1
        self._check_length(line)
        return line

    def join(self) -> Iterator[JoinedLine]:
        """The instructions of the file, in their order."""
        comments: list[str] = []
        while (raw := self.take()) is not None:
            self._note_comment(raw, comments)
            first = raw.rstrip("\r\n").lstrip(SPACES)
            if self._read_directive(first):
                comments.pop()
            if not first or first[0] == "#":
                continue
            column = len(raw) - len(raw.lstrip(SPACES)) + 1
            yield self._finish(first, column, tuple(comments))
            comments = []

    def _finish(self, first: str, column: int, comments: tuple[str, ...]) -> JoinedLine:
        """The line with all that continues it."""
        start, has_gap = self.number, False
        text, is_whole = self._cut_continuation(first)
        parts, pieces, length = [text], [(0, start, column)], len(text)
        while not is_whole and (raw := self.take()) is not None:
            if raw.lstrip(SPACES).startswith("#"):
                continue
            line = raw.rstrip("\r\n")
            if not line.lstrip(SPACES):
                has_gap = True
                continue
            text, is_whole = self._cut_continuation(line)
            parts.append(text)
            pieces.append((length, self.number, 1))
            length += len(text)
        return JoinedLine(
            text="".join(parts), start=start, end=self.number, pieces=tuple(pieces), comments=comments, has_gap=has_gap
        )

    def _cut_continuation(self, line: str) -> tuple[str, bool]:
        """The line without the escape character that continues it, and whether there is none."""
        if not line.rstrip(" \t").endswith(self.escape):
            return line, True
        match = _CONTINUED[self.escape].search(line)
        return (line[: match.start()], False) if match else (line, True)

    def _note_comment(self, raw: str, comments: list[str]) -> None:
        if not raw.lstrip(SPACES).startswith("#"):
            return
        comment = raw[1:].strip(SPACES)
        if comment:
            comments.append(comment)
        else:
            comments.clear()

    def _read_directive(self, line: str) -> bool:
        """Whether the line is a directive of the parser; its value is noted."""
        if not self._takes_directives:
            return False
        match = _DIRECTIVE.fullmatch(line[1:].lstrip(SPACES)) if line.startswith("#") else None
        name = match[1].lower() if match else ""
        if match is None or name not in _DIRECTIVES:
            self._takes_directives = False
            return False
        place = RecipePlace(self.name, self.number)
        if name in self.directives:
            raise refuse_recipe(place, f"a second '{name}' directive", "a Dockerfile takes one of each: remove it")
        self.directives[name] = match[2]
        if name == "escape":
            self._set_escape(match[2], place)
        return True

    def _set_escape(self, value: str, place: RecipePlace) -> None:
        if value not in _CONTINUED:
            raise refuse_recipe(place, f"'{value}' is not an escape character", "use \\ or `, as in: # escape=`")
        self.escape = value

    def _check_length(self, line: str) -> None:
        if len(line) * 4 < LONGEST_LINE:
            return
        size = len(line.encode("utf-8", "surrogatepass"))
        if size > LONGEST_LINE or (size == LONGEST_LINE and not line.endswith("\n")):
            raise refuse_recipe(
                RecipePlace(self.name, self.number),
                f"the line has {size} bytes; a line of a Dockerfile has at most {LONGEST_LINE - 1}",
                "break it with a backslash, or COPY its content from a file",
            )
