# SPDX-License-Identifier: BSD-3-Clause
"""A known failure (its message, cause and remedy), and a clue: where a log has such a message."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen

# How a message relates to the failure; in a report they come in this order.
CAUSE = "cause"  # it says why
GENERAL = "general"  # the program says that it failed; why is its own affair
CONSEQUENCE = "consequence"  # something else failed before
NOTE = "note"  # programs go on, and may fail later because of it
LEVELS = (CAUSE, GENERAL, CONSEQUENCE, NOTE)

# How sure the explanation is.
CERTAIN = "certain"  # the message has this one meaning
LIKELY = "likely"  # it nearly always means this
POSSIBLE = "possible"  # there are other reasons for it
SURE = (CERTAIN, LIKELY, POSSIBLE)


@frozen
class Failure:
    """One message; `{1}` in cause and remedy stands for the pattern's first group. Its names are the table's keys."""

    subject: str  # memory
    name: str
    pattern: str  # found anywhere in a line, small and capital letters alike; may reach into the lines after it
    cause: str  # a part of a sentence, without a full stop
    remedy: str
    source: str  # where the message was read, or how it was made
    examples: tuple[str, ...]  # verbatim, as programs print them
    level: str = CAUSE
    sure: str = CERTAIN
    unless: str = ""  # a pattern: where the same lines match it, this is no failure
    is_late: bool = False  # whatever failed before it in the log brought it about
    least: int = 1  # how often it must occur
    missing: str = "unknown"  # what stands for a group that matched nothing
    is_exception: bool = False  # it stands for what ends a traceback and nothing else explains


@frozen
class Clue(JsonValue):
    """A line that explains a failure."""

    line: str  # as it was written, without control characters, labels of ranks and secrets
    cause: str
    remedy: str
    name: str = ""
    level: str = CAUSE
    sure: str = CERTAIN
    number: int = 0  # of the line in its file; from 1
    rank: str = ""  # as the launcher labelled the line; empty where it has no label
    ranks: int = 0  # how many ranks wrote it
    count: int = 1  # how often it occurs
    file: str = ""  # where several files were searched

    @property
    def is_failure(self) -> bool:
        """Whether a program failed; else it only said something worth knowing."""
        return self.level != NOTE

    @property
    def place(self) -> str:
        """`train.out:12`, or `line 12` where there is no file."""
        return f"{self.file}:{self.number}" if self.file else f"line {self.number}"
