# SPDX-License-Identifier: BSD-3-Clause
"""What is seen of a build's steps: on a terminal, in logs, by programs, and of one that failed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import random
import struct
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from kedge.builds.request import BuildRequest, StepLabel, StepOutcome
from kedge.cli.build import describe_failure, describe_problem, show_excerpt
from kedge.cli.build_display import BuildScreen, JsonSteps, PlainSteps, make_display, measure
from kedge.cli.build_steps import FailedStep, OutputLines, StepBoard, clean_line, name_step
from kedge.cli.console import Console
from kedge.cli.options import GlobalOptions
from kedge.cli.progress import CountedTask, Reporter, leave_plain
from kedge.errors import BuildFailed, KedgeError
from tests.builders.rows import each_row

MAKE = StepLabel("builder", 3, 7, "RUN make")
COPY = StepLabel("", 1, 2, "COPY . /src")


def test_plain_steps_and_failed_ones() -> None:
    lines: list[str] = []
    steps = PlainSteps(lines.append)
    steps.begin(MAKE)
    steps.output(MAKE, b"cc -c a.c\nlink")
    steps.end(StepOutcome(MAKE, 1.24, "done", 100))
    steps.begin(COPY)
    steps.end(StepOutcome(COPY, 0.0, "cached"))
    assert lines == [
        "[builder 3/7] RUN make", "[builder 3/7] 0.0 cc -c a.c", "[builder 3/7] 0.0 link", "[builder 3/7] DONE 1.2s",
        "[1/2] COPY . /src", "[1/2] CACHED",
    ]  # fmt: skip
    assert name_step(StepLabel("a\033[2J", 1, 1, "")) == "[a\\x1b[2J 1/1]"
    steps = StepBoard()
    steps.begin(MAKE)
    steps.output(MAKE, b"".join(b"line %d\n" % number for number in range(100)))
    steps.end(StepOutcome(MAKE, 2.0, "failed"))
    assert steps.failures[0].lines[-1] == "line 99"
    assert len(steps.failures[0].lines) == 20
    assert steps.running == []


def test_json_steps_are_one_object_per_line() -> None:
    lines: list[str] = []
    steps = JsonSteps(lines.append)
    steps.begin(MAKE)
    steps.output(MAKE, b"\033[31mred\n")
    steps.end(StepOutcome(MAKE, 1.23456, "done", 100))
    steps.tasks.line("a note")
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == ["begin", "output", "end", "note"]
    assert events[0] == {"event": "begin", "stage": "builder", "number": 3, "total": 7, "text": "RUN make"}
    assert events[1]["line"] == "red"
    assert events[2] == {
        **{"event": "end", "stage": "builder", "number": 3, "total": 7, "text": "RUN make"},
        **{"state": "done", "seconds": 1.235, "size": 100},
    }


def test_plain_steps_take_calls_of_many_threads() -> None:
    lines: list[str] = []
    steps = PlainSteps(lines.append)

    def work(number: int) -> None:
        label = StepLabel(f"stage{number}", 1, 1, "RUN x")
        steps.begin(label)
        for _ in range(50):
            steps.output(label, b"text\n")
        steps.end(StepOutcome(label, 0.1, "done"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines) == 8 * 52


def test_make_display_chooses_by_terminal_and_mode() -> None:
    console = Console(environ={}, out=io.StringIO(), err=io.StringIO())
    assert isinstance(make_display(console, "auto"), PlainSteps)
    assert isinstance(make_display(console, "json"), JsonSteps)
    options = GlobalOptions()
    options.quiet = True
    quiet = Console(options, environ={}, out=io.StringIO(), err=io.StringIO())
    assert type(make_display(quiet, "plain")) is StepBoard
    errors = io.StringIO()
    console = Console(environ={}, out=io.StringIO(), err=errors)
    make_display(console, "json")
    console.progress.warn("look")
    assert json.loads(errors.getvalue()) == {"event": "note", "text": "warning: look"}


HOSTILE = [
    (b"\033]0;title\007text", "text"), (b"\033]0;title\033\\text", "text"),
    (b"\033]8;;http://x\033\\link\033]8;;\033\\", "link"), (b"a\033[2Jb\033[Hc\033[10;10Hd", "abcd"),
    (b"\033[?1049hother screen", "other screen"), (b"\033cgone", "gone"), (b"\033P1;2qpicture\033\\after", "after"),
    (b"\xc2\x9b2Jc1", "c1"), (b"\033]0;never ended", ""), (b"bell\007 back\010space", "bell backspace"),
    (b"\033[31mred\033[0m", "red"), (b"a\tb", "a       b"), (b"caf\xc3\xa9 \xff", "café \ufffd"),
    ("a\u202eb".encode(), "a\\u202eb"), (b"\033", ""), (b"\033[", ""),
]  # fmt: skip


@each_row(("data", "expected"), HOSTILE)
def test_clean_line_takes_out_what_steers_a_terminal(data: bytes, expected: str) -> None:
    assert clean_line(data) == expected


def test_clean_line_leaves_no_control_character() -> None:
    assert clean_line(b"\033[1;31mred\033[0m", color=True) == "\033[1;31mred\033[0m\033[0m"
    assert clean_line(b"\033[8mhidden\033[5mblink\033[41mbox", color=True) == "hiddenblinkbox"
    assert clean_line(b"\033[31;8mboth\033[2J", color=True) == "both"
    assert clean_line(b"plain", color=True) == "plain"
    assert clean_line(b" 10%\r 50%\r100%\r") == "100%"
    assert clean_line(b"windows\r") == "windows"
    assert clean_line(b"\r\r") == ""
    generator = random.Random(13)
    for _ in range(2000):
        data = bytes(generator.choice(b"\033[]P;0123Hm\\\x07\x9b\xc2ab\r\x00") for _ in range(30))
        assert clean_line(data).isprintable()
        shown = clean_line(data, color=True)
        assert all(part.isprintable() for part in shown.replace("\033[", "").split("m"))


def test_output_lines_are_whole_or_broken() -> None:
    lines = OutputLines(keep=2)
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\nthree\nfo") == ["two", "three"]
    assert lines.show_last(6) == ["two", "three", "fo"]
    assert lines.show_last(1) == ["fo"]
    assert lines.finish() == ["fo"]
    assert list(lines.last) == ["three", "fo"]
    assert lines.finish() == []
    lines = OutputLines(keep=2)
    count = sum(len(lines.feed(b"x" * 10_000)) for _ in range(100))
    assert 50 < count < 100


TEXT = "FROM a\nENV B=1\nRUN make && \\\n    make install\nCMD x\nUSER y\nEXPOSE 1\n"


def test_failures_show_output_and_the_marked_lines(tmp_path: Path) -> None:
    recipe = tmp_path / "Dockerfile"
    recipe.write_text(TEXT)
    failed = FailedStep(StepOutcome(StepLabel("", 2, 3, "RUN make"), 1.5, "failed"), ("cc: error", ""))
    problem = BuildFailed("step failed", context={"file": "Dockerfile", "line": "3"})
    lines = list(describe_failure(failed, problem, BuildRequest(str(recipe)), leave_plain))
    assert lines == [
        "failed after 1.5s: [2/3] RUN make", "  | cc: error", "  |", "Dockerfile:3", "     1 | FROM a",
        "     2 | ENV B=1", ">    3 | RUN make && \\", ">    4 |     make install", "     5 | CMD x",
        "     6 | USER y",
    ]  # fmt: skip
    request = BuildRequest("-", text=b"FROM a\nRUN \033[2Jx\n")
    lines = list(show_excerpt({"file": "-", "line": "2"}, request, leave_plain))
    assert lines[-1] == ">    2 | RUN \\x1b[2Jx"
    request = BuildRequest(str(tmp_path / "gone"))
    assert list(show_excerpt({}, request, leave_plain)) == []
    assert list(show_excerpt({"file": "gone", "line": "7"}, request, leave_plain)) == []
    assert list(show_excerpt({"file": "gone", "line": "x"}, request, leave_plain)) == []
    body = "".join(f"    line {number}\n" for number in range(20))
    request = BuildRequest("-", text=f"Bootstrap: x\n%post\n    a\n    b\n\n%test\n    c\n%help\n{body}".encode())
    lines = list(show_excerpt({"file": "-", "line": "2"}, request, leave_plain))
    assert lines == ["-:2", "     1 | Bootstrap: x", ">    2 | %post", "     3 |     a", "     4 |     b"]
    assert len(list(show_excerpt({"file": "-", "line": "8"}, request, leave_plain))) == 1 + 2 + 1 + 12
    request = BuildRequest("-", text=b"Bootstrap: debootstrap\n")
    problem = KedgeError("failed", context={"file": "-", "line": "1", "output": "E: no mirror\nE: \x1b[2J"})
    lines = list(describe_problem(problem, request, leave_plain))
    assert lines[0] == "  | E: no mirror"
    assert "\x1b" not in lines[1]
    assert lines[-1] == ">    1 | Bootstrap: debootstrap"


LONG_MAKE = StepLabel("builder", 3, 7, "RUN make " + "very " * 40 + "long")


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
    screen.begin(LONG_MAKE)
    screen.output(LONG_MAKE, b"".join(b"line %d\n" % number for number in range(20)))
    screen.draw()
    shown = terminal.shown()
    assert shown[0].startswith("[builder 3/7] RUN make very")
    assert shown[0].endswith("0.0s")
    assert shown[1:] == [f"  | line {number}" for number in range(14, 20)]
    assert all(len(line) < 60 for line in shown)


def test_screen_leaves_one_line_of_a_finished_step(terminal: Terminal) -> None:
    screen = draw(terminal)
    for state in ("done", "cached", "failed"):
        screen.begin(LONG_MAKE)
        screen.output(LONG_MAKE, b"text\n")
        screen.end(StepOutcome(LONG_MAKE, 1.23, state))
    screen.close()
    shown = terminal.shown()
    assert [line.split()[-1] for line in shown] == ["1.2s", "CACHED", "1.2s"]
    assert len(shown) == 3


def test_screen_takes_away_what_does_not_fit(terminal: Terminal) -> None:
    screen = draw(terminal)
    for number in range(10):
        label = StepLabel("a", number, 10, "RUN x")
        screen.begin(label)
        screen.output(label, b"1\n2\n3\n4\n5\n6\n7\n")
    screen.draw()
    assert len(terminal.shown()) <= 11
    stream = io.StringIO()
    screen = draw(stream)
    screen.begin(LONG_MAKE)
    screen.close()
    assert "RUN make" in stream.getvalue()
    assert measure("\033[31mab\033[0m") == 2
    assert measure("日本") == 4
    assert measure("e\u0301") == 1


def test_screen_takes_away_lines_that_a_narrower_terminal_broke(terminal: Terminal) -> None:
    screen = draw(terminal)
    screen.begin(LONG_MAKE)
    terminal.resize(30, 12)
    screen.draw()
    assert "\033[2A\r\033[J" in terminal.getvalue()
    assert all(measure(line) < 30 for line in terminal.shown()[-1:])


def test_screen_shows_tasks_and_notes(terminal: Terminal) -> None:
    screen = draw(terminal)
    reporter = Reporter(screen.tasks, lambda _text: None, notes=True, details=False, warnings=True)
    task: CountedTask = reporter.task("layer 1", 1000)
    screen.begin(LONG_MAKE)
    reporter.note("pulled a base")
    assert terminal.shown()[0] == "pulled a base"
    assert terminal.shown()[-1].startswith("  layer 1: 0 B of 1.0 kB")
    task.finish()
    assert len(terminal.shown()) == 2
