# SPDX-License-Identifier: BSD-3-Clause
"""A page of docs/sites as its reader types it: every command and job file, in order, with its line and section.

Commands stand in console blocks, in the right column of "they type | you type", and in sentences. What carries the
mark `_Not run by a test: …_` (the line above a block, or its own cell or line) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.requirements import REPOSITORY
from tests.tutorials.documents import Found, Kind

MARK = "_Not run by a test: "
_HEAD = "| they type | you type |"
_SPAN = re.compile(r"`([^`]+)`")
_CELL = re.compile(r"(?<!\\)\|")


def read_site_page(name: str) -> list[Found]:
    """What a reader of docs/sites/NAME.md types and saves; `host` is the section, kedge.toml is a script."""
    return read_site_text((REPOSITORY / f"docs/sites/{name}.md").read_text(encoding="utf-8"))


def read_site_text(text: str) -> list[Found]:
    """The same of the text of a page."""
    return list(_read(text.splitlines()))


def _read(lines: list[str]) -> Iterator[Found]:
    section, number, is_table = "", 0, False
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            end = lines.index("```", number + 1)
            above = next(each for each in reversed(lines[:number]) if each.strip())
            if not above.startswith(MARK):
                yield from _read_block(line[3:], number + 2, lines[number + 1 : end], section)
            number = end
        elif line.startswith("## "):
            section = line[3:]
        else:
            is_table = line == _HEAD or (is_table and line.startswith("|"))
            told = _CELL.split(line)[-2] if is_table else line
            if MARK not in told:
                yield from _read_spans(number + 1, told, section, shortest=2 if is_table else 3)
        number += 1


def _read_block(language: str, first: int, lines: list[str], section: str) -> Iterator[Found]:
    if language == "toml":
        yield Found(first, Kind.SCRIPT, "\n".join([*lines, ""]), section)
        return
    assert language == "console", f"line {first}: what is a block of {language or 'nothing'}?"
    command = ""
    for number, line in enumerate(lines, start=first):
        assert command or line.startswith("$ "), f"line {number}: what is shown is not compared: {line}"
        command += line.removeprefix("$ ").removesuffix("\\").strip() + " "
        if not line.endswith("\\"):
            yield Found(number, Kind.COMMAND, command.strip(), section)
            command = ""


def _read_spans(number: int, line: str, section: str, *, shortest: int) -> Iterator[Found]:
    """Commands in a sentence or a cell: two words are one where commands are listed; elsewhere they name a verb."""
    for match in _SPAN.finditer(line):
        words = match[1].replace("\\|", "|").split()
        if len(words) >= shortest and "kedge" in words:
            yield Found(number, Kind.COMMAND, " ".join(words), section)
