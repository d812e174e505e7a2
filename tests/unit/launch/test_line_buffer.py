# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of streams become lines; a line without an end costs no more memory than its longest part."""

from __future__ import annotations

import time

import pytest

from kedge.launch.line_buffer import LineBuffer


class Taken:
    def __init__(self, longest: int = 8) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.buffer = LineBuffer(lambda stream, line: self.lines.append((stream, line)), longest)


def test_lines_of_two_streams_do_not_mix() -> None:
    taken = Taken()
    taken.buffer.hear("a", b"one")
    taken.buffer.hear("b", b"two\nthr")
    taken.buffer.hear("a", b"\n\n")
    taken.buffer.flush()
    taken.buffer.flush()
    assert taken.lines == [("b", b"two\n"), ("a", b"one\n"), ("a", b"\n"), ("b", b"thr")]


def test_long_lines_come_in_parts() -> None:
    taken = Taken()
    for piece in (b"12345", b"67890", b"x\ny\n"):
        taken.buffer.hear("a", piece)
    assert taken.lines == [("a", b"1234567890"), ("a", b"x\n"), ("a", b"y\n")]


def test_a_line_that_nobody_takes_is_not_handed_over_again() -> None:
    def refuse(stream: int, line: bytes) -> None:
        raise BrokenPipeError(f"{stream} {line!r}")

    buffer = LineBuffer(refuse, 8)
    with pytest.raises(BrokenPipeError):
        buffer.hear(1, b"one\n")
    buffer.flush()


def test_single_bytes_without_an_end_are_cheap() -> None:
    """What was kept so far is not copied for each of them."""
    taken = Taken(1 << 20)
    began = time.monotonic()
    for _ in range(1 << 20):
        taken.buffer.hear("a", b".")
    assert time.monotonic() - began < 30
