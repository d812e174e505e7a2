# SPDX-License-Identifier: BSD-3-Clause
"""The picture of a build on a terminal, whatever its size."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from kedge.builds.request import StepLabel, StepOutcome
from kedge.cli.build_display import BuildScreen, measure
from kedge.cli.progress import CountedTask, Reporter

MAKE = StepLabel("builder", 3, 7, "RUN make " + "very " * 40 + "long")


class Terminal(io.StringIO):
    """A stream with the size of a terminal that a test can change, and the screen it would show."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.ours, self.theirs = pty.openpty()
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def fileno(self) -> int:
        return self.theirs

    def shown(self) -> list[str]:
        """What a reader sees: lines, with those taken away that were drawn over."""
        rows: list[str] = []
        for piece in self.getvalue().split("\n"):
            while piece.startswith("\033["):
                if "A\r\033[J" in piece[:16]:
                    count, _, piece = piece[2:].partition("A\r\033[J")
                    del rows[len(rows) - int(count) :]
            rows.append(piece)
        return rows[:-1]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(60, 12)
    yield made
    os.close(made.ours)
    os.close(made.theirs)


def draw(stream: TextIO) -> BuildScreen:
    screen = BuildScreen(stream, color=False)
    screen._start = lambda: None  # type: ignore[method-assign]  # drawn by events only
    return screen


def test_screen_shows_running_steps_with_their_last_lines(terminal: Terminal) -> None:
    screen = draw(terminal)
    screen.begin(MAKE)
    screen.output(MAKE, b"".join(b"line %d\n" % number for number in range(20)))
    screen.draw()
    shown = terminal.shown()
    assert shown[0].startswith("[builder 3/7] RUN make very")
    assert shown[0].endswith("0.0s")
    assert shown[1:] == [f"  | line {number}" for number in range(14, 20)]
    assert all(len(line) < 60 for line in shown)


def test_screen_leaves_one_line_of_a_finished_step(terminal: Terminal) -> None:
    screen = draw(terminal)
    for state in ("done", "cached", "failed"):
        screen.begin(MAKE)
        screen.output(MAKE, b"text\n")
        screen.end(StepOutcome(MAKE, 1.23, state))
    screen.close()
    shown = terminal.shown()
    assert [line.split()[-1] for line in shown] == ["1.2s", "CACHED", "1.2s"]
    assert len(shown) == 3


def test_screen_is_never_higher_than_the_terminal(terminal: Terminal) -> None:
    screen = draw(terminal)
    for number in range(10):
        label = StepLabel("a", number, 10, "RUN x")
        screen.begin(label)
        screen.output(label, b"1\n2\n3\n4\n5\n6\n7\n")
    screen.draw()
    assert len(terminal.shown()) <= 11


def test_screen_takes_away_lines_that_a_narrower_terminal_broke(terminal: Terminal) -> None:
    screen = draw(terminal)
    screen.begin(MAKE)
    terminal.resize(30, 12)
    screen.draw()
    assert "\033[2A\r\033[J" in terminal.getvalue()
    assert all(measure(line) < 30 for line in terminal.shown()[-1:])


def test_screen_shows_tasks_and_notes(terminal: Terminal) -> None:
    screen = draw(terminal)
    reporter = Reporter(screen.tasks, lambda _text: None, notes=True, details=False, warnings=True)
    task: CountedTask = reporter.task("layer 1", 1000)
    screen.begin(MAKE)
    reporter.note("pulled a base")
    assert terminal.shown()[0] == "pulled a base"
    assert terminal.shown()[-1].startswith("  layer 1: 0 B of 1.0 kB")
    task.finish()
    assert len(terminal.shown()) == 2


def test_screen_survives_a_terminal_without_size() -> None:
    stream = io.StringIO()
    screen = draw(stream)
    screen.begin(MAKE)
    screen.close()
    assert "RUN make" in stream.getvalue()


def test_measure_counts_columns() -> None:
    assert measure("\033[31mab\033[0m") == 2
    assert measure("日本") == 4
    assert measure("e\u0301") == 1
