# SPDX-License-Identifier: BSD-3-Clause
"""What is expected of each command of a tutorial: that it works, unless something else is said for its line.

An expectation is found by the line of the document; of several commands on one line by (line, number from 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tests.tutorials.documents import Found, Kind


class Verdict(Enum):
    """As the page says it."""

    WORKS = "works"
    DIFFERENT = "works with a difference"
    CANNOT = "cannot"
    TEXT = "nothing to run"


@dataclass(frozen=True, slots=True)
class Expect:
    """What comes of a command. A note is the stated difference; `cannot` the reason why it does not work as written."""

    says: str = ""  # a pattern that its output has
    status: int = 0
    note: str = ""
    cannot: str = ""
    typed: str = ""  # what is typed instead, where it is not the text
    then: str = ""  # what is typed afterwards, where it cannot work as it is written: the right form
    then_says: str = ""
    save: str = ""  # the name that a batch script is saved under
    keys: tuple[tuple[str, str], ...] = ()  # questions and what is typed then
    leaves: int = 0  # shells that the reader leaves afterwards, where the tutorial does not say so
    before: tuple[str, ...] = ()  # what the reader does first
    seconds: float = 90
    is_elsewhere: bool = False  # typed at the second terminal

    @property
    def verdict(self) -> Verdict:
        """How the page counts it."""
        if self.cannot:
            return Verdict.CANNOT
        return Verdict.DIFFERENT if self.note else Verdict.WORKS


Key = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lesson:
    """One tutorial: its document, its readers' values for what authors left open, and what is expected."""

    document: str  # beginning of the file's name
    title: str
    about: str
    expectations: Mapping[Key, Expect]
    fills: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # downloaded file -> the commands in it
    has_two_terminals: bool = False  # what stands for the login node is typed at the second one

    def list_steps(self, found: list[Found]) -> list[Step]:
        """Every command in order, with what is expected of it; the commands of a downloaded file have its line."""
        counts: dict[int, int] = {}
        steps = []
        for each in found:
            for text in self.files.get(each.text, (each.text,)) if each.kind is Kind.FILE else (each.text,):
                number = counts.get(each.line, 0)
                counts[each.line] = number + 1
                key = (each.line, number)
                expect = self.expectations.get(key) or self.expectations.get(each.line) or Expect()
                steps.append(Step(each, text, expect))
        return steps


@dataclass(frozen=True, slots=True)
class Step:
    """A command, or the name of a file that is downloaded, and what is expected of it."""

    found: Found
    text: str
    expect: Expect

    @property
    def is_typed(self) -> bool:
        """Whether it is run at its place; batch scripts and files are saved there, and run by the command after."""
        return self.found.kind is Kind.COMMAND or (self.found.kind is Kind.FILE and self.text != self.found.text)
