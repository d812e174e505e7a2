# SPDX-License-Identifier: BSD-3-Clause
"""Where the minutes of a run go: by group of tests, and the files that take longest; all tests in build/test-times.tsv.

Seconds of the clock are those of all workers together; CPU seconds are a worker's and of the processes that it waited
for. What a service does that outlives its test counts for the test that ends it.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

CPU = "cpu seconds"  # the property of a test that travels from its worker
_MOST_FILES = 25
_seconds: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0])  # by file: tests, clock, CPU
_elsewhere: list[float] = []  # CPU seconds
_tests: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])  # by test: clock, CPU


def read_cpu() -> float:
    """What this process, its ended children and those that others waited for have used so far."""
    return sum(os.times()[:4]) + sum(_elsewhere)


def add_cpu(seconds: float) -> None:
    """What a process used that was started for us by another, which still runs."""
    _elsewhere.append(seconds)


def note(report: pytest.TestReport) -> None:
    """Take in one phase of a test."""
    row = _seconds[report.nodeid.partition("::")[0]]
    test = _tests[report.nodeid]
    row[1] += report.duration
    test[0] += report.duration
    if report.when == "teardown":
        row[0] += 1
        test[1] = sum(float(value) for name, value in report.user_properties if name == CPU)
        row[2] += test[1]


def render() -> list[str]:
    """Two tables."""
    groups: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for path, row in _seconds.items():
        group = "/".join(Path(path).parts[:2])
        groups[group] = [total + value for total, value in zip(groups[group], row, strict=True)]
    lines = [f"{'tests':>7} {'minutes':>8} {'CPU':>6}"]
    rows = sorted(groups.items(), key=lambda pair: -pair[1][1])
    rows += sorted(_seconds.items(), key=lambda pair: -pair[1][1])[:_MOST_FILES]
    return lines + [f"{row[0]:7.0f} {row[1] / 60:8.2f} {row[2] / 60:6.2f}  {name}" for name, row in rows]


def write(path: Path) -> None:
    """Seconds of the clock and of the CPU of each test, the longest first."""
    path.parent.mkdir(exist_ok=True)
    rows = sorted(_tests.items(), key=lambda pair: -pair[1][0])
    path.write_text("".join(f"{clock:.3f}\t{cpu:.3f}\t{name}\n" for name, (clock, cpu) in rows))
