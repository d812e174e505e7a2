# SPDX-License-Identifier: BSD-3-Clause
"""What logs and programs see of a build's steps."""

from __future__ import annotations

import io
import json
import threading

from kedge.builds.request import StepLabel, StepOutcome
from kedge.cli.build_display import JsonSteps, PlainSteps, make_display
from kedge.cli.build_steps import StepBoard, name_step
from kedge.cli.console import Console
from kedge.cli.options import GlobalOptions

MAKE = StepLabel("builder", 3, 7, "RUN make")
COPY = StepLabel("", 1, 2, "COPY . /src")


def test_plain_steps_write_a_line_per_event() -> None:
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


def test_failed_steps_are_remembered_with_their_last_lines() -> None:
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


def test_name_step_shows_no_control_characters() -> None:
    assert name_step(StepLabel("a\033[2J", 1, 1, "")) == "[a\\x1b[2J 1/1]"


def test_make_display_chooses_by_terminal_and_mode() -> None:
    console = Console(environ={}, out=io.StringIO(), err=io.StringIO())
    assert isinstance(make_display(console, "auto"), PlainSteps)
    assert isinstance(make_display(console, "json"), JsonSteps)
    options = GlobalOptions()
    options.quiet = True
    quiet = Console(options, environ={}, out=io.StringIO(), err=io.StringIO())
    assert type(make_display(quiet, "plain")) is StepBoard


def test_make_display_json_shows_notes_as_json() -> None:
    errors = io.StringIO()
    console = Console(environ={}, out=io.StringIO(), err=errors)
    make_display(console, "json")
    console.progress.warn("look")
    assert json.loads(errors.getvalue()) == {"event": "note", "text": "warning: look"}
