# SPDX-License-Identifier: BSD-3-Clause
"""Enroot's credentials file, which has the syntax of netrc.

Not the standard library's reader: that one refuses files by owner and mode, and gives up at the first odd line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.image.registry.secret import Secret

_WORD = late_pattern(r'"((?:[^"\\]|\\.)*)"|(\S+)')


@frozen
class NetrcEntry:
    """One machine; `machine` is empty for the default entry."""

    machine: str
    login: str
    password: Secret

    @property
    def is_command(self) -> bool:
        """Whether the password is a shell command, which Enroot would run and we do not."""
        return self.password.reveal().startswith("$(")


def parse_netrc(text: str) -> list[NetrcEntry]:
    """Return all entries with a login and a password, in order; anything else is passed over."""
    entries: list[NetrcEntry] = []
    fields: dict[str, str] = {}
    words = _read_words(text)
    for word in words:
        if word in ("machine", "default"):
            _finish(entries, fields)
            fields = {"machine": next(words, "") if word == "machine" else ""}
        elif word in ("login", "password", "account"):
            fields[word] = next(words, "")
    _finish(entries, fields)
    return entries


def _finish(entries: list[NetrcEntry], fields: dict[str, str]) -> None:
    if "machine" in fields and fields.get("login") and fields.get("password"):
        entries.append(NetrcEntry(fields["machine"].lower(), fields["login"], Secret(fields["password"])))


def _read_words(text: str) -> Iterator[str]:
    in_macro = False
    for line in text.splitlines():
        if in_macro:
            in_macro = bool(line.strip())  # a macro ends at the next empty line
            continue
        if line.lstrip().startswith("#"):
            continue
        position = 0
        while match := _next_word(line, position):
            word, position = match
            if word == "macdef":
                in_macro = True
                break
            yield word


def _next_word(line: str, position: int) -> tuple[str, int] | None:
    while position < len(line) and line[position].isspace():
        position += 1
    if position >= len(line):
        return None
    if line.startswith("$(", position):  # a command may hold spaces; it ends at the last bracket
        end = line.rfind(")") + 1 or len(line)
        return line[position:end], end
    match = _WORD.match(line, position)
    if match is None:
        return None
    return (re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]), match.end()
