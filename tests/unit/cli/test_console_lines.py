# SPDX-License-Identifier: BSD-3-Clause
"""Sentences on a terminal are wrapped beside where they began; in a pipe a line stays a line."""

from __future__ import annotations

import io
import re

import pytest

from kedge.cli.console import Console, paint_text, wrap_hanging
from tests.builders.rows import each_row

SENTENCE = "CUDA 11.6.1 needs driver 510.47.03 or newer, or 450.80.02 or newer by minor-version compatibility."


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_wrap_hanging_stands_beside_its_beginning() -> None:
    lines = wrap_hanging("  note    ", SENTENCE, 50)
    assert lines[0].startswith("  note    CUDA 11.6.1")
    assert all(line.startswith(" " * 10) for line in lines[1:])
    assert all(len(line) <= 50 for line in lines)
    assert " ".join(line.strip() for line in lines).removeprefix("note    ") == SENTENCE
    name = "nvcr.io/nvidia/pytorch@sha256:" + "a" * 64
    assert any(name in line for line in wrap_hanging("Digest              ", name, 40))
    assert len(wrap_hanging(" " * 40, SENTENCE, 1)) > 1
    assert wrap_hanging("  # 3 kB  ", "", 80) == ["  # 3 kB"]
    assert wrap_hanging("", "", 80) == [""]
    assert wrap_hanging("", "one two three four five six seven eight", 30)[1].startswith("  ")


@each_row(("stream", "count"), [(Terminal(), 2), (io.StringIO(), 1)])
def test_print_hanging_wraps_on_terminals_alone(
    stream: io.StringIO, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Console(out=stream).print_hanging("  note    ", SENTENCE)
    lines = stream.getvalue().splitlines()
    assert len(lines) == count
    assert lines[0].startswith("  note    CUDA 11.6.1")


@each_row(("stream", "count"), [(Terminal(), 2), (io.StringIO(), 1)])
def test_note_hanging_wraps_on_terminals_alone(
    stream: io.StringIO, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    Console(err=stream).note_hanging("Cause: ", SENTENCE)
    assert len(stream.getvalue().splitlines()) == count


def test_wrap_hanging_counts_visible_characters() -> None:
    begin = "  " + paint_text("note    ", "note")
    lines = wrap_hanging(begin, SENTENCE, 50)
    plain = wrap_hanging("  note    ", SENTENCE, 50)
    assert lines[1:] == plain[1:]
    assert lines[0] == plain[0].replace("  note    ", begin)
    lines = wrap_hanging(f"nvcr.io/nvidia/pytorch:24.03-py3: {paint_text('runs', 'good')} on ", SENTENCE, 34, 2)
    assert lines[0] == "nvcr.io/nvidia/pytorch:24.03-py3:"
    assert lines[1].startswith(f"  {paint_text('runs', 'good')} on CUDA")
    assert all(len(line) <= 34 for line in lines[2:])


@each_row("columns", [30, 50, 120])
def test_print_table_breaks_no_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not fit, the table is plain, and the terminal itself breaks its lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    console = Console(out=stream)
    rows = [
        ("generic-gridengine", console.paint("gridengine", "good"), "A cluster with Grid Engine"),
        ("local", "local", ""),
    ]
    console.print_table(("site", "scheduler", "title"), rows)
    shown = stream.getvalue()
    assert "generic-gridengine" in shown
    assert "\033[" in shown
    assert ("─" in shown) == (columns > 30)
    if columns == 30:
        lines = [re.sub(r"\033\[[0-9;]*m", "", line) for line in shown.splitlines()]
        assert [line.rindex(word) for line, word in zip(lines[:2], ("SCHEDULER", "gridengine"), strict=True)] == [
            20,
            20,
        ]
