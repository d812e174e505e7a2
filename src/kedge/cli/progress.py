# SPDX-License-Identifier: BSD-3-Clause
"""Progress that costs little: tasks add up under a lock, and a display is told at most ten times a second.

Two displays exist: `PlainDisplay` writes lines for a log; the bars of a terminal are in `console.py`, which owns rich.
"""

from __future__ import annotations

import time
from _thread import RLock, allocate_lock  # threading's own, whose import costs more than what most verbs say
from collections.abc import Callable

from kedge.base.frozen import frozen

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object

REFRESH_SECONDS = 0.1
_LINE_SECONDS = 10.0
_LINE_FRACTION = 0.1
_LONGEST_SILENCE = 60.0
_MANY = 100  # things that are counted, of which a rate is told


@frozen
class Heads:
    """How the lines begin."""

    note: str = ""
    detail: str = ""
    warning: str = "warning: "


OWN_HEADS = Heads()
SHIM_HEADS = Heads("INFO:    ", "VERBOSE: ", "WARNING: ")  # as scripts and tools know them from Apptainer


def leave_plain(text: str, meaning: str) -> str:
    """The text without colour, as files, pipes and logs get it."""
    del meaning
    return text


class Display(Protocol):
    """Shows tasks; called by one thread at a time."""

    def begin(self, task: CountedTask) -> None:
        """A task was made."""
        ...

    def update(self, task: CountedTask) -> None:
        """A task moved; called at most every REFRESH_SECONDS per task."""
        ...

    def end(self, task: CountedTask) -> None:
        """A task is complete."""
        ...

    def line(self, text: str) -> None:
        """Write one line that is not part of any task."""
        ...

    def close(self) -> None:
        """End the progress and leave the terminal as it was."""
        ...


class CountedTask:
    """One piece of work: how much is done, since when, and of how much."""

    def __init__(self, label: str, total: int | None, unit: str, reporter: Reporter) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self.began = time.monotonic()
        self.is_finished = False
        self._reporter = reporter
        self._next = self.began + REFRESH_SECONDS
        self._lock = allocate_lock()

    def advance(self, amount: int) -> None:
        """Add to what is done; the display hears of it when enough time has passed."""
        with self._lock:
            self.done += amount
            now = time.monotonic()
            if now < self._next or self.is_finished:
                return
            self._next = now + REFRESH_SECONDS
        self._reporter.show(self)

    def finish(self) -> None:
        """The piece is complete; a second call does nothing."""
        with self._lock:
            if self.is_finished:
                return
            self.is_finished = True
        self._reporter.end(self)

    def elapsed(self) -> float:
        """Seconds since the task began."""
        return time.monotonic() - self.began


class Reporter:
    """The Progress that operations see: decides what is shown, and hands tasks to the display."""

    def __init__(
        self,
        display: Display | None,
        write: Callable[[str], None],
        heads: Heads = OWN_HEADS,
        *,
        notes: bool,
        details: bool,
        warnings: bool,
        paint: Callable[[str, str], str] = leave_plain,
    ) -> None:
        self._display = display
        self._write = write
        self._heads = heads
        self._notes, self._details, self._warnings = notes, details, warnings
        self._paint = paint
        self._lock = RLock()  # a signal handler may raise while it is held by the same thread

    def task(self, label: str, total: int | None, unit: str = "bytes") -> CountedTask:
        """Begin a piece of work."""
        task = CountedTask(label, total, unit, self)
        if self._display is not None:
            with self._lock:
                self._display.begin(task)
        return task

    def show(self, task: CountedTask) -> None:
        """Tell the display that a task moved, unless another thread is telling it something just now."""
        if self._display is not None and self._lock.acquire(blocking=False):
            try:
                self._display.update(task)
            finally:
                self._lock.release()

    def end(self, task: CountedTask) -> None:
        """Tell the display that a task is complete."""
        if self._display is not None:
            with self._lock:
                self._display.end(task)

    def note(self, message: str, *, meaning: str = "") -> None:
        """Say one thing, unless --quiet; on a terminal in the colour of its meaning, if it has one."""
        if self._notes:
            self._say(self._heads.note, message, meaning)

    def detail(self, message: str) -> None:
        """Say one thing with --verbose."""
        if self._details:
            self._say(self._heads.detail, message)

    def warn(self, message: str) -> None:
        """Say something to act on, unless --silent."""
        if self._warnings:
            self._say(self._paint(self._heads.warning, "warning"), message)

    def close(self) -> None:
        """Take the display down."""
        if self._display is not None:
            with self._lock:
                self._display.close()

    def _say(self, head: str, message: str, meaning: str = "") -> None:
        from kedge.cli.redaction import escape_controls, redact  # late: most commands say nothing

        message = head + self._paint(escape_controls(redact(message)), meaning)
        with self._lock:
            if self._display is not None:
                self._display.line(message)
            else:
                self._write(message)


class PlainDisplay:
    """Lines for a log: one per task each ten seconds or tenth of the way, whichever is later, and one at the end."""

    def __init__(self, write: Callable[[str], None], head: str = "") -> None:
        self._write = write
        self._head = head  # of lines about tasks
        self._shown: dict[int, tuple[float, int]] = {}  # task -> when a line was last written, and at how much

    def begin(self, task: CountedTask) -> None:
        """Start the task's clock; nothing is written yet, because most tasks are over at once."""
        self._shown[id(task)] = (task.began, 0)

    def update(self, task: CountedTask) -> None:
        """Write a line when ten seconds and a tenth of the way have passed since the last one, or a minute."""
        when, done = self._shown.get(id(task), (task.began, 0))
        now = time.monotonic()
        is_little = task.total is not None and task.done - done < task.total * _LINE_FRACTION
        if now - when < (_LONGEST_SILENCE if is_little else _LINE_SECONDS):
            return
        self._shown[id(task)] = (now, task.done)
        self._write(self._head + describe_task(task))

    def end(self, task: CountedTask) -> None:
        """Write the total, the time and the rate; of a few things that are counted a rate says nothing."""
        self._shown.pop(id(task), None)
        seconds = task.elapsed()
        is_telling = seconds >= 0.05 and task.done >= (1 if task.unit == "bytes" else _MANY)
        rate = f", {format_amount(round(task.done / seconds), task.unit)}/s" if is_telling else ""
        self._write(
            f"{self._head}{task.label}: {format_amount(task.done, task.unit)} in {format_seconds(seconds)}{rate}"
        )

    def line(self, text: str) -> None:
        """Write a line."""
        self._write(text)

    def close(self) -> None:
        """Do nothing: this display has nothing to take down."""


def describe_task(task: CountedTask) -> str:
    """`layer 1: 1.2 GB of 3.4 GB (35%), 210 MB/s, 10 s left`."""
    seconds = max(task.elapsed(), 1e-3)
    rate = task.done / seconds
    text = f"{task.label}: {format_amount(task.done, task.unit)}"
    if task.total:
        text += f" of {format_amount(task.total, task.unit)} ({min(100, 100 * task.done // task.total)}%)"
    text += f", {format_amount(round(rate), task.unit)}/s"
    if task.total and rate > 0:
        text += f", {format_seconds(max(0, task.total - task.done) / rate)} left"
    return text


def format_amount(amount: int, unit: str = "bytes") -> str:
    """`1.9 GB`, `51,000 files`: decimal units, as network and disk makers count."""
    if unit != "bytes":
        return f"{amount:,} {unit.removesuffix('s') if amount == 1 else unit}"
    value = float(amount)
    for name in ("B", "kB", "MB", "GB"):
        if value < 999.5 or (name == "B" and value < 1000):
            return f"{value:.0f} {name}" if name == "B" or value >= 99.95 else f"{value:.1f} {name}"
        value /= 1000
    return f"{value:.2f} TB"


def format_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
