# SPDX-License-Identifier: BSD-3-Clause
"""What a build shows while its steps run: plain lines for logs, JSON lines for programs, nothing with --quiet.

The picture on a terminal is in `build_screen.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from kedge.cli.build_steps import RunningStep, StepBoard, describe_end, name_step
from kedge.cli.console import paint_text
from kedge.cli.progress import CountedTask, describe_task, leave_plain
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


# A build on a terminal: finished steps scroll up as lines, below them stand the running ones with their last output.
#
# The lower part is drawn anew a few times a second. It is never wider than the terminal and never higher, and it asks
# for the size each time, because people change it.

_TAIL = 6  # lines of output below a running step
_REFRESH_SECONDS = 0.2
_DEFAULT_SIZE = os.terminal_size((80, 24))
_SGR = re.compile(r"(\033\[[0-9;]*m)")
_STATES = {"done": "good", "cached": "dim", "failed": "bad"}


class BuildScreen(StepBoard):
    """The picture of one build."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        super().__init__(color=color)
        self.tasks = _ScreenTasks(self)
        self._stream = stream
        self._paint = paint_text if color else leave_plain
        self._drawn: list[str] = []
        self._counted: list[CountedTask] = []
        self._is_closed = threading.Event()
        self._ticker: threading.Thread | None = None

    def show_begin(self, label: StepLabel) -> None:  # noqa: ARG002 - the board knows it
        """Add a running step to the screen."""
        self._start()
        self.draw()

    def show_end(self, outcome: StepOutcome) -> None:
        """A line that stays."""
        columns = self._size().columns
        text = f"{name_step(outcome.label)} {escape_line(outcome.label.text)}"
        ended = self._paint(describe_end(outcome), _STATES.get(outcome.state, ""))
        self.write_line(_set_right(text, ended, columns))

    def close(self) -> None:
        """Take the lower part off the terminal."""
        with self.lock:
            self._is_closed.set()
            self._write(self._erase())
            self._drawn = []

    def write_line(self, text: str) -> None:
        """Write a line that stays, above what is drawn anew."""
        with self.lock:
            self._write(f"{self._erase()}{text}\n")
            self._drawn = []
            self.draw()

    def draw(self) -> None:
        """Draw the lower part as it is now."""
        with self.lock:
            if self._is_closed.is_set():
                return
            frame = self._make_frame()
            if frame or self._drawn:
                self._write(self._erase() + "".join(f"{line}\n" for line in frame))
            self._drawn = frame

    def add_task(self, task: CountedTask) -> None:
        """Show a download or the like."""
        with self.lock:
            self._counted.append(task)
        self._start()

    def remove_task(self, task: CountedTask) -> None:
        """Remove a task that is complete."""
        with self.lock:
            self._counted = [other for other in self._counted if other is not task]
            self.draw()

    def _make_frame(self) -> list[str]:
        size = self._size()
        lines: list[str] = []
        for step in self.running:
            lines += self._show_step(step, size.columns)
        lines += [_fit(f"  {escape_line(describe_task(task))}", size.columns) for task in self._counted]
        return lines[-max(size.lines - 1, 1) :]

    def _show_step(self, step: RunningStep, columns: int) -> list[str]:
        text = f"{name_step(step.label)} {escape_line(step.label.text)}"
        head = _set_right(text, self._paint(f"{step.seconds:.1f}s", "running"), columns)
        tail = (f"  {self._paint('|', 'dim')} {line}" for line in step.lines.show_last(_TAIL))
        return [head, *(_fit(line, columns) for line in tail)]

    def _erase(self) -> str:
        """The characters that take away what was drawn; a terminal made narrower has broken its lines."""
        columns = self._size().columns
        rows = sum(max(1, -(-measure(line) // columns)) for line in self._drawn)
        return f"\033[{rows}A\r\033[J" if rows else ""

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):  # no terminal, as with --progress tty into a file
            return _DEFAULT_SIZE
        return size if size.columns > 0 and size.lines > 0 else _DEFAULT_SIZE

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that hung up must not end the build
            self._stream.write(text)
            self._stream.flush()

    def _start(self) -> None:
        """Begin to draw now and then; without a thread the picture changes with events only."""
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="kedge-screen", daemon=True)
            with contextlib.suppress(RuntimeError):  # a limit of processes: the picture is a luxury
                self._ticker.start()

    def _tick(self) -> None:
        while not self._is_closed.wait(_REFRESH_SECONDS):
            self.draw()


class _ScreenTasks:
    """The tasks of a build's progress on its screen: a display for the console's reporter."""

    def __init__(self, screen: BuildScreen) -> None:
        self._screen = screen

    def begin(self, task: CountedTask) -> None:
        """Show it."""
        self._screen.add_task(task)

    def update(self, task: CountedTask) -> None:
        """Do nothing: the screen looks at its tasks by itself."""

    def end(self, task: CountedTask) -> None:
        """Take it away."""
        self._screen.remove_task(task)

    def line(self, text: str) -> None:
        """A note or a warning."""
        self._screen.write_line(text)

    def close(self) -> None:
        """Take the picture down."""
        self._screen.close()


def measure(text: str) -> int:
    """How many columns a text takes; colours take none, East Asian characters two."""
    return sum(_width(character) for character in _SGR.sub("", text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fit(text: str, columns: int) -> str:
    """The text cut to less than a line, so that no terminal breaks it."""
    room = max(columns - 1, 1)
    if measure(text) <= room:
        return text
    kept, used, has_colour = [], 0, False
    for piece in _SGR.split(text):
        if piece.startswith("\033"):
            kept.append(piece)
            has_colour = True
            continue
        for character in piece:
            used += _width(character)
            if used > room:
                return "".join(kept) + ("\033[0m" if has_colour else "")
            kept.append(character)
    return "".join(kept)


def _set_right(text: str, end: str, columns: int) -> str:
    """A text at the left edge and an end at the right one; the text is cut where both do not fit."""
    room = columns - 1 - measure(end) - 1
    if room < 10:
        return _fit(f"{text} {end}", columns)
    shown = _fit(text, room + 1)
    return f"{shown}{' ' * (room - measure(shown))} {end}"
