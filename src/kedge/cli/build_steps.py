# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a build that runs: which run now, the last lines of each, and those that failed.

Stages run side by side, so calls come from several threads.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.cli.redaction import escape_controls, escape_line

if TYPE_CHECKING:
    from kedge.builds.request import StepLabel, StepOutcome

# The output of a build step as clean lines: programs of an image must not move the cursor or set a terminal's title.
#
# Plain colours stay where they are welcome; everything else that steers a terminal is taken out.

_LONGEST_LINE = 16 * 1024  # bytes; a longer line is broken
_MOST_SHOWN = 2 << 20  # bytes of a step, as BuildKit has it
_CLIPPED = "[more than 2 MiB of output: the rest is in the log only]"
_RESET = "\033[0m"
# one escape sequence: a string that an ESC \ or a bell ends, a control sequence with its parameters, any other
_ESCAPE = re.compile(
    r"(?:\033[\]PX^_]|[\x90\x98\x9d-\x9f])[^\033\x07\x9c]*(?:\x07|\033\\|\x9c)?"
    r"|(?:\033\[|\x9b)([0-?]*)[ -/]*([@-~]?)"
    r"|\033[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x8f\x91-\x97\x99\x9a\x9c]")
_PLAIN_COLOURS = frozenset((0, 1, 2, 22, *range(30, 38), 39, *range(90, 98)))


class OutputLines:
    """Takes the output of one program in pieces, gives whole lines, and remembers the last ones.

    Of a program that prints very much only the beginning is given line by line: the log has the rest.
    """

    def __init__(self, *, keep: int, color: bool = False) -> None:
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._color = color
        self._rest = b""
        self._size = 0

    @property
    def last(self) -> list[str]:
        """The last lines."""
        return [clean_line(line, color=self._color) for line in self._kept]

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete with this piece."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            starts = range(0, len(self._rest), _LONGEST_LINE)
            *broken, self._rest = (self._rest[start : start + _LONGEST_LINE] for start in starts)
            whole += broken
        return self._keep(whole)

    def finish(self) -> list[str]:
        """Return what is left when the program has ended without a last newline."""
        rest, self._rest = self._rest, b""
        return self._keep([rest] if rest else [])

    def show_last(self, count: int) -> list[str]:
        """The last lines, and the one that is being written: bars that never end a line are seen, too."""
        current = [clean_line(self._rest, color=self._color)] if self._rest else []
        return [*self.last, *current][-count:]

    def _keep(self, lines: list[bytes]) -> list[str]:
        self._kept.extend(lines)
        if self._size > _MOST_SHOWN:
            return []
        self._size += sum(map(len, lines)) + len(lines)
        shown = [clean_line(line, color=self._color) for line in lines]
        return [*shown, _CLIPPED] if self._size > _MOST_SHOWN else shown


def clean_line(data: bytes, *, color: bool = False) -> str:
    """One line as a terminal would show it in the end, without anything that steers the terminal."""
    shown = data.rstrip(b"\r").rpartition(b"\r")[2] or data.replace(b"\r", b"")  # bars write over themselves
    text = _ESCAPE.sub(_keep_colour if color else "", shown.decode("utf-8", "replace"))
    text = _CONTROL.sub("", text).expandtabs()
    if not color or "\033" not in text:
        return escape_controls(text)
    pieces = re.split(r"(\033\[[0-9;]*m)", text)
    return "".join(piece if piece.startswith("\033") else escape_controls(piece) for piece in pieces) + _RESET


def _keep_colour(sequence: re.Match[str]) -> str:
    """The sequence if it sets a plain colour, else nothing."""
    parameters, final = sequence[1] or "", sequence[2]
    numbers = parameters.split(";")
    is_plain = final == "m" and all(number == "" or number.isdigit() for number in numbers)
    return sequence[0] if is_plain and {int(number or 0) for number in numbers} <= _PLAIN_COLOURS else ""


_FAILURE_LINES = 20  # of a failed step's output, shown again


@dataclass(slots=True)
class RunningStep:
    """A step that runs now."""

    label: StepLabel
    lines: OutputLines
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began


@frozen
class FailedStep:
    """A step that failed, and the end of its output."""

    outcome: StepOutcome
    lines: tuple[str, ...]


class StepBoard:
    """What all displays share: which steps run, and the last lines of each. By itself it shows nothing."""

    def __init__(self, *, color: bool = False) -> None:
        self.failures: list[FailedStep] = []
        self.lock = threading.RLock()  # a signal handler may raise while the same thread holds it
        self._color = color
        self._running: dict[StepLabel, RunningStep] = {}

    def begin(self, label: StepLabel) -> None:
        """A step begins."""
        with self.lock:
            self._find(label)
            self.show_begin(label)

    def output(self, label: StepLabel, data: bytes) -> None:
        """A piece of what its program prints, as it comes."""
        with self.lock:
            step = self._find(label)
            self.show_lines(step, step.lines.feed(data))

    def end(self, outcome: StepOutcome) -> None:
        """A step has ended."""
        with self.lock:
            step = self._find(outcome.label)
            self.show_lines(step, step.lines.finish())
            del self._running[outcome.label]
            if outcome.state == "failed":
                self.failures.append(FailedStep(outcome, tuple(step.lines.last)))
            self.show_end(outcome)

    def close(self) -> None:
        """End the display of steps: nothing more will come."""

    def show_begin(self, label: StepLabel) -> None:
        """Show that a step begins."""

    def show_lines(self, step: RunningStep, lines: list[str]) -> None:
        """Show lines of a step's output."""

    def show_end(self, outcome: StepOutcome) -> None:
        """Show how a step ended."""

    @property
    def running(self) -> list[RunningStep]:
        """The steps that run now, the oldest first."""
        return list(self._running.values())

    def _find(self, label: StepLabel) -> RunningStep:
        if label not in self._running:
            self._running[label] = RunningStep(label, OutputLines(keep=_FAILURE_LINES, color=self._color))
        return self._running[label]


def name_step(label: StepLabel) -> str:
    """`[builder 3/7]`, or `[3/7]` where the stage has no name."""
    return f"[{escape_line(label.stage)}{' ' if label.stage else ''}{label.number}/{label.total}]"


def describe_end(outcome: StepOutcome) -> str:
    """`DONE 1.2s`, `CACHED`, `FAILED 0.3s`."""
    return "CACHED" if outcome.state == "cached" else f"{outcome.state.upper()} {outcome.seconds:.1f}s"
