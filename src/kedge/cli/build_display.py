# SPDX-License-Identifier: BSD-3-Clause
"""What a build shows while its steps run: plain lines for logs, JSON lines for programs, nothing with --quiet.

The picture on a terminal is in `build_screen.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from kedge.cli.build_steps import RunningStep, StepBoard, describe_end, name_step
from kedge.cli.progress import CountedTask
from kedge.cli.redaction import escape_line

if TYPE_CHECKING:
    from kedge.builds.request import StepLabel, StepOutcome
    from kedge.cli.console import Console

PROGRESS_MODES = ("auto", "plain", "tty", "json")


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
        self._say("begin", **label.as_dict())

    def show_lines(self, step: RunningStep, lines: list[str]) -> None:
        """Write one JSON object for each line of a program's output."""
        for line in lines:
            label = step.label
            self._say("output", stage=label.stage, number=label.number, seconds=round(step.seconds, 3), line=line)

    def show_end(self, outcome: StepOutcome) -> None:
        """The label again, how the step ended, and the size of its layer."""
        self._say("end", **outcome.label.as_dict(), **_round(outcome.as_dict()))

    def _say(self, event: str, **values: object) -> None:
        with self.lock:
            self._write(json.dumps({"event": event, **values}))


class _JsonTasks:
    """Downloads and notes as JSON lines: a display of progress."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def begin(self, task: CountedTask) -> None:
        """Show nothing: the end of the step says it all."""

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
        """Do nothing: this display has nothing to take down."""


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


def _round(outcome: dict[str, object]) -> dict[str, object]:
    seconds = outcome["seconds"]
    return {
        "state": outcome["state"],
        "seconds": round(seconds, 3) if isinstance(seconds, float) else seconds,
        "size": outcome["size"],
    }
