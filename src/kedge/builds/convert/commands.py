# SPDX-License-Identifier: BSD-3-Clause
"""RUN commands as lines of %post.

Each RUN has a shell of its own; %post is one shell with -e. Under -e a command before `&&` may fail unnoticed, so
chains become lines of their own. What changes the shell (cd, export, variables) stands in parentheses.
"""

from __future__ import annotations

import re

_KEYWORDS = ("if", "for", "while", "until", "case", "select", "function", "{", "[[", "!")
_CHANGES_SHELL = re.compile(
    r"(?:cd|pushd|popd|export|set|umask|exit|exec|source|\.|alias|unset|trap|ulimit|shopt|eval|hash|enable)(?=\s|$)"
    r"|[A-Za-z_]\w*=\S*\s*$"
)
_CLOSING = {"(": ")", "{": "}"}


def write_command(text: str) -> list[str]:
    """Lines of %post that do what a RUN in the shell form does."""
    parts = _split_chain(text)
    if parts is None:
        needs_no_errexit = ";" in text or "\n" in text.replace("\\\n", "")
        return ["(", *(["set +e"] if needs_no_errexit else []), text, ")"]
    if any(_CHANGES_SHELL.match(part) for part in parts):
        return ["(", *parts, ")"]
    return parts


def _split_chain(text: str) -> list[str] | None:
    """The commands of `a && b && c`; None where the text is anything but such a chain, a pipe or `a || b`."""
    operators: list[tuple[int, str]] = []
    position = 0
    while position < len(text):
        step, operator = _read_step(text, position)
        if step < 0:
            return None
        if operator:
            operators.append((position, operator))
        position += step
    if {operator for _, operator in operators} == {"&&", "||"}:
        return None
    parts = []
    begin = 0
    for place, operator in [*operators, (len(text), "&&")]:
        if operator == "&&":
            parts.append(_trim_part(text[begin:place]))
            begin = place + 2
    has_keyword = any(part.split(None, 1)[:1] == [word] for part in parts for word in _KEYWORDS)
    return None if has_keyword or not all(parts) else parts


def _read_step(text: str, position: int) -> tuple[int, str]:
    """How many characters belong together here, and the operator they are; -1 for what is no simple chain."""
    character = text[position]
    if character == "\\":
        return 2, ""
    if character in "'\"`":
        return _skip_quoted(text, position), ""
    if text.startswith(("$(", "${"), position):
        return _skip_nested(text, position + 1), ""
    if character == "(":
        return _skip_nested(text, position), ""
    pair = text[position : position + 2]
    if pair in ("&&", "||"):
        return 2, pair
    if pair in (">&", "<&", "&>"):
        return 2, ""
    if character in ";&\n)" or pair == "<<" or (character == "#" and text[position - 1 : position].isspace()):
        return -1, ""
    return 1, ""


def _skip_quoted(text: str, position: int) -> int:
    """The length of a quoted stretch; -1 if it does not end."""
    quote = text[position]
    end = position + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote != "'" else 1
    return end + 1 - position if end < len(text) else -1


def _skip_nested(text: str, position: int) -> int:
    """The length from before a parenthesis or brace, or the dollar sign before it, to the one that closes it."""
    begin = position - 1 if text[position - 1 : position] == "$" else position
    opening, closing = text[position], _CLOSING[text[position]]
    depth = 0
    end = position
    while end < len(text):
        if text[end] in "'\"":
            length = _skip_quoted(text, end)
            if length < 0:
                return -1
            end += length
            continue
        depth += (text[end] == opening) - (text[end] == closing)
        end += 2 if text[end] == "\\" else 1
        if depth == 0:
            return end - begin
    return -1


def _trim_part(text: str) -> str:
    """A command without blanks and continuations around it."""
    begin, end = 0, len(text)
    while begin < end and (text[begin].isspace() or text.startswith("\\\n", begin)):
        begin += 1 if text[begin].isspace() else 2
    while begin < end and text[end - 1].isspace():
        end -= 2 if text.endswith("\\\n", begin, end) else 1
    return text[begin:end]
