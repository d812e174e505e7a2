# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a build that runs: which run now, the last lines of each, and those that failed.

Stages run side by side, so calls come from several threads.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.cli.build_output import OutputLines
from kedge.cli.redaction import escape_line

if TYPE_CHECKING:
    from kedge.builds.request import StepLabel, StepOutcome

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
