# SPDX-License-Identifier: BSD-3-Clause
"""Progress: counted right from many threads, told to the display rarely, and readable in a log."""

from __future__ import annotations

import threading
import time

import pytest

from kedge.cli import progress
from kedge.cli.progress import CountedTask, PlainDisplay, Reporter, describe_task, format_amount, format_seconds
from tests.builders.rows import each_row


def make_reporter(lines: list[str]) -> Reporter:
    return Reporter(PlainDisplay(lines.append), lines.append, notes=True, details=False, warnings=True)


class CountingDisplay(PlainDisplay):
    """Counts how often it is told something."""

    updates = 0

    def update(self, task: CountedTask) -> None:
        self.updates += 1


def test_progress_counts_from_many_threads() -> None:
    lines: list[str] = []
    task = make_reporter(lines).task("layer", 8000)
    threads = [threading.Thread(target=lambda: [task.advance(1) for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    task.finish()
    task.finish()
    assert task.done == 8000
    assert len(lines) == 1
    assert lines[0].startswith("layer: 8.0 kB in ")


def test_progress_tells_the_display_at_most_ten_times_a_second() -> None:
    display = CountingDisplay(lambda text: None)
    reporter = Reporter(display, lambda text: None, notes=True, details=True, warnings=True)
    task = reporter.task("layer", None)
    began = time.monotonic()
    for _ in range(200_000):
        task.advance(65536)
    elapsed = time.monotonic() - began
    assert display.updates <= elapsed / progress.REFRESH_SECONDS + 1
    assert elapsed / 200_000 < 50e-6  # a chunk of 64 KiB at 1 GB/s takes 65 µs


def test_progress_log_gets_a_line_when_time_and_way_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines: list[str] = []
    task = make_reporter(lines).task("layer", 1_000_000_000)
    for _ in range(100):
        clock[0] += 1
        task.advance(10_000_000)
    task.finish()
    assert lines[0] == "layer: 100 MB of 1.0 GB (10%), 10.0 MB/s, 1 min 30 s left"
    assert len(lines) == 11
    assert lines[-1] == "layer: 1.0 GB in 1 min 40 s, 10.0 MB/s"


def test_progress_says_no_more_than_it_should() -> None:
    lines: list[str] = []
    reporter = Reporter(None, lines.append, notes=False, details=False, warnings=False)
    reporter.note("a")
    reporter.detail("b")
    reporter.warn("c")
    task = reporter.task("d", 1)
    task.advance(1)
    task.finish()
    reporter.close()
    assert lines == []
    said: list[str] = []
    reporter = Reporter(None, said.append, notes=True, details=True, warnings=True)
    reporter.warn("asked https://me:hunter2@keys.example for \x1b[2Jkey")
    assert said == ["warning: asked https://me:***@keys.example for \\x1b[2Jkey"]


@each_row(("amount", "text"), [
    (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"), (999_499, "999 kB"),
    (999_500, "1.0 MB"), (1_900_000_000, "1.9 GB"), (4_000_000_000_000, "4.00 TB"),
])  # fmt: skip
def test_format_amount_keeps_two_or_three_digits(amount: int, text: str) -> None:
    assert format_amount(amount) == text


@each_row(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.9, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 00 s"), (3725, "1 h 02 min")]
)
def test_format_seconds_reads_well(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_format_amount_and_plain_display_of_few_things() -> None:
    assert (format_amount(1, "tags"), format_amount(2, "tags"), format_amount(0, "tags")) == (
        "1 tag",
        "2 tags",
        "0 tags",
    )
    task = make_reporter([]).task("reading", None, "files")
    task.advance(1200)
    assert describe_task(task).startswith("reading: 1,200 files, ")
    lines: list[str] = []
    display = PlainDisplay(lines.append)
    for done, unit in ((1, "tags"), (5000, "files")):
        task = CountedTask("tags of x", None, unit, make_reporter([]))
        task.began -= 0.2
        task.done = done
        display.end(task)
    assert lines[0] == "tags of x: 1 tag in 0.2 s"
    assert lines[1].endswith("files/s")
