# SPDX-License-Identifier: BSD-3-Clause
"""What a build shows while its steps run: plain lines for logs, JSON lines for programs, nothing with --quiet.

The picture on a terminal is in `build_screen.py`. Stages run side by side, so calls come from several threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from kedge.cli.build_output import OutputLines
from kedge.cli.progress import CountedTask
from kedge.cli.redaction import escape_line

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.ops.build.request import StepLabel, StepOutcome

PROGRESS_MODES = ("auto", "plain", "tty", "json")
FAILURE_LINES = 20  # of a failed step's output, shown again


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


@dataclass(frozen=True, slots=True)
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
        """Nothing more will come."""

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
            self._running[label] = RunningStep(label, OutputLines(keep=FAILURE_LINES, color=self._color))
        return self._running[label]


class PlainSteps(StepBoard):
    """One line per event, each with its step: for logs, pipes and CI."""

    def __init__(self, write: Callable[[str], None], head: str = "", *, color: bool = False) -> None:
        super().__init__(color=color)
        self._write = write
        self._head = head

    def show_begin(self, label: StepLabel) -> None:
        """`[builder 3/7] RUN make`."""
        self._write(f"{self._head}{name_step(label)} {escape_line(label.text)}")

    def show_lines(self, step: RunningStep, lines: list[str]) -> None:
        """`[builder 3/7] 0.8 cc -c main.c`: the seconds since the step began, and the line."""
        for line in lines:
            self._write(f"{self._head}{name_step(step.label)} {step.seconds:.1f} {line}".rstrip())

    def show_end(self, outcome: StepOutcome) -> None:
        """`[builder 3/7] DONE 1.2s`, `[builder 3/7] CACHED`."""
        self._write(f"{self._head}{name_step(outcome.label)} {describe_end(outcome)}")


class JsonSteps(StepBoard):
    """One JSON object per line and event, for programs; tasks and notes of a build are among them."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self.tasks = _JsonTasks(self._say)

    def show_begin(self, label: StepLabel) -> None:
        """The step's label."""
        self._say("begin", **asdict(label))

    def show_lines(self, step: RunningStep, lines: list[str]) -> None:
        """One object per line."""
        for line in lines:
            label = step.label
            self._say("output", stage=label.stage, number=label.number, seconds=round(step.seconds, 3), line=line)

    def show_end(self, outcome: StepOutcome) -> None:
        """The label again, how the step ended, and the size of its layer."""
        self._say("end", **asdict(outcome.label), **_round(asdict(outcome)))

    def _say(self, event: str, **values: object) -> None:
        with self.lock:
            self._write(json.dumps({"event": event, **values}))


class _JsonTasks:
    """Downloads and notes as JSON lines: a display of progress."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def begin(self, task: CountedTask) -> None:
        """Nothing: the end says it all."""

    def update(self, task: CountedTask) -> None:
        """The amount so far."""
        self._say("progress", task=task.label, done=task.done, total=task.total, unit=task.unit)

    def end(self, task: CountedTask) -> None:
        """The whole amount."""
        self._say("progress", task=task.label, done=task.done, total=task.done, unit=task.unit)

    def line(self, text: str) -> None:
        """A note or a warning."""
        self._say("note", text=text)

    def close(self) -> None:
        """Nothing to take down."""


def make_display(console: Console, mode: str) -> StepBoard:
    """The display for `--progress MODE`; tasks of the console's progress are shown by it, too."""
    stream = console.error_stream
    if mode == "json":
        steps = JsonSteps(console.write_note)
        console.use_display(steps.tasks)
        return steps
    if console.quiet or (console.json and mode == "auto"):
        return StepBoard()
    is_screen = stream.isatty() and console.environ.get("TERM", "dumb") != "dumb"
    color = console.colours_notes
    if mode == "tty" or (mode == "auto" and is_screen):
        from kedge.cli.build_screen import BuildScreen  # late: logs need none of it

        screen = BuildScreen(stream, color=color)
        console.use_display(screen.tasks)
        return screen
    return PlainSteps(console.write_note, "INFO:    " if console.options.shim else "", color=color)


def name_step(label: StepLabel) -> str:
    """`[builder 3/7]`, or `[3/7]` where the stage has no name."""
    return f"[{escape_line(label.stage)}{' ' if label.stage else ''}{label.number}/{label.total}]"


def describe_end(outcome: StepOutcome) -> str:
    """`DONE 1.2s`, `CACHED`, `FAILED 0.3s`."""
    return "CACHED" if outcome.state == "cached" else f"{outcome.state.upper()} {outcome.seconds:.1f}s"


def _round(outcome: dict[str, object]) -> dict[str, object]:
    seconds = outcome["seconds"]
    return {
        "state": outcome["state"],
        "seconds": round(seconds, 3) if isinstance(seconds, float) else seconds,
        "size": outcome["size"],
    }
