# SPDX-License-Identifier: BSD-3-Clause
"""A directive of a batch script, cut into options as its scheduler cuts it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CutOption:
    """One option as it was found: its full name, its value, and what is wrong with it."""

    name: str
    value: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Directive:
    """One option of one directive line. `option` is the name that the scheduler's manual uses (`--nodes`, `-l`)."""

    line: int
    raw: str
    scheduler: str
    option: str
    value: str | None = None
    is_live: bool = True  # whether the scheduler that the script is for reads it
    reason: str = ""  # why not
    problem: str = ""  # why it refuses it: known before it is asked


def cut_any(words: deque[str]) -> CutOption:
    """The first option in the words of a scheduler that is only recognised: nothing is wrong with it."""
    word = words.popleft()
    name, equals, value = word.partition("=")
    if equals:
        return CutOption(name, value)
    return CutOption(word, words.popleft() if words and not words[0].startswith("-") else None)


def show_option(directive: Directive) -> str:
    """`--nodes=2`, `-l h_rt=60`: an option as it could be written again."""
    if not directive.option:
        return directive.value or ""
    if directive.value is None:
        return directive.option
    separator = "=" if directive.option.startswith("--") else " "
    return f"{directive.option}{separator}{directive.value}"
