# SPDX-License-Identifier: BSD-3-Clause
"""Values of variables between shells and Dockerfiles: read into text and variables, written with other quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kedge.builds.convert.notes import MARK_BEGIN, MARK_END

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(:?[-+?][^}$`\"'\\]*)?\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=+,@%${}\ue000\ue001-]*")
_MARKED = re.compile(f"{MARK_BEGIN}([A-Za-z0-9_]+){MARK_END}")
_ACTIVE = "&|<>()`"  # a shell does something here that a Dockerfile cannot


@dataclass(frozen=True, slots=True)
class Variable:
    """`$NAME` or `${NAME:-word}` in a value."""

    name: str
    rest: str = ""  # :-word

    def __str__(self) -> str:
        return f"${{{self.name}{self.rest}}}"


Pieces = tuple[str | Variable, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable that a shell script sets, exports, or both."""

    name: str
    value: Pieces | None  # None: `export NAME` alone
    is_exported: bool


class _TooMuch(Exception):
    """The line does more than setting variables."""


def read_assignments(line: str) -> list[Assignment] | None:
    """`export A=b; C=d` as assignments; None where the line does anything else, or needs a shell to know the value."""
    try:
        return list(_read_statements(line))
    except _TooMuch:
        return None


def _read_statements(line: str) -> Iterator[Assignment]:
    position = 0
    is_exported = False
    while position < len(line):
        character = line[position]
        if character in " \t\r":
            position += 1
        elif character == ";":
            position, is_exported = position + 1, False
        elif character == "#":
            return
        elif assignment := _ASSIGNMENT.match(line, position):
            value, position = _read_word(line, assignment.end())
            yield Assignment(assignment[1], value, is_exported)
        else:
            name = _NAME.match(line, position)
            if name is None or (name.end() < len(line) and line[name.end()] not in " \t\r;"):
                raise _TooMuch
            position = name.end()
            if is_exported:
                yield Assignment(name[0], None, True)
            elif name[0] != "export":
                raise _TooMuch
            is_exported = True


def _read_word(text: str, position: int) -> tuple[Pieces, int]:
    """A word of a shell, from `position` on; the end is where the word ends."""
    pieces: list[str | Variable] = []
    quote = ""
    if text.startswith("~", position):
        raise _TooMuch
    while position < len(text):
        character = text[position]
        if not quote and character in " \t\r;":
            break
        if character == quote or (not quote and character in "'\""):
            quote = "" if quote else character
        elif quote != "'" and character == "\\":
            position += 1
            pieces.append(_unescape(text[position : position + 1], quote))
        elif quote != "'" and character == "$" and (match := _VARIABLE.match(text, position)):
            pieces.append(Variable(match[1] or match[2], match[3] or ""))
            position = match.end() - 1
        elif quote != "'" and (character in "$`" or (not quote and character in _ACTIVE)):
            raise _TooMuch
        else:
            pieces.append(character)
        position += 1
    if quote:
        raise _TooMuch
    return tuple(pieces), position


def _unescape(character: str, quote: str) -> str:
    if not character:
        raise _TooMuch
    return character if not quote or character in '"\\$`' else f"\\{character}"


def read_dockerfile_value(text: str, escape: str = "\\") -> Pieces:
    """A value of ENV or LABEL as it stands in a Dockerfile."""
    pieces: list[str | Variable] = []
    quote = ""
    position = 0
    while position < len(text):
        character = text[position]
        if character == quote or (not quote and character in "'\""):
            quote = "" if quote else character
        elif character == escape and quote != "'" and position + 1 < len(text):
            position += 1
            following = text[position]
            pieces.append(following if not quote or following in f'"${escape}' else character + following)
        elif quote != "'" and character == "$" and (match := _VARIABLE.match(text, position)):
            pieces.append(Variable(match[1] or match[2], match[3] or ""))
            position = match.end() - 1
        else:
            pieces.append(character)
        position += 1
    return tuple(pieces)


def write_dockerfile_value(pieces: Sequence[str | Variable]) -> str:
    """The value for ENV or LABEL."""
    text = "".join(
        str(piece) if isinstance(piece, Variable) else re.sub(r'(["\\$])', r"\\\1", piece) for piece in pieces
    )
    marked = mark_to_variables(text)
    return marked if text and _PLAIN.fullmatch(text) else f'"{marked}"'


def write_shell_value(pieces: Sequence[str | Variable]) -> str:
    """The value for a shell, in double quotes where it needs some."""
    text = "".join(
        str(piece) if isinstance(piece, Variable) else re.sub(r'(["\\$`])', r"\\\1", piece) for piece in pieces
    )
    return text if text and _PLAIN.fullmatch(text) else f'"{text}"'


def join_literal(pieces: Sequence[str | Variable]) -> str:
    """The value as it is; variables as they are written."""
    return "".join(str(piece) for piece in pieces)


def mark_to_variables(text: str) -> str:
    """Marked names of build arguments as `${NAME}`."""
    return _MARKED.sub(r"${\1}", text)
