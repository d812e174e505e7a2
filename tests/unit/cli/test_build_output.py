# SPDX-License-Identifier: BSD-3-Clause
"""Output of build steps as lines that cannot steer a terminal."""

from __future__ import annotations

import random

from kedge.cli.build_steps import OutputLines, clean_line
from tests.builders.rows import each_row

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


def test_clean_line_keeps_plain_colours_where_they_are_welcome() -> None:
    assert clean_line(b"\033[1;31mred\033[0m", color=True) == "\033[1;31mred\033[0m\033[0m"
    assert clean_line(b"\033[8mhidden\033[5mblink\033[41mbox", color=True) == "hiddenblinkbox"
    assert clean_line(b"\033[31;8mboth\033[2J", color=True) == "both"
    assert clean_line(b"plain", color=True) == "plain"


def test_clean_line_shows_the_last_state_of_a_bar() -> None:
    assert clean_line(b" 10%\r 50%\r100%\r") == "100%"
    assert clean_line(b"windows\r") == "windows"
    assert clean_line(b"\r\r") == ""


def test_clean_line_never_leaves_a_control_character() -> None:
    generator = random.Random(13)
    for _ in range(2000):
        data = bytes(generator.choice(b"\033[]P;0123Hm\\\x07\x9b\xc2ab\r\x00") for _ in range(30))
        assert clean_line(data).isprintable()
        shown = clean_line(data, color=True)
        assert all(part.isprintable() for part in shown.replace("\033[", "").split("m"))


def test_output_lines_gives_whole_lines_and_keeps_the_last() -> None:
    lines = OutputLines(keep=2)
    assert lines.feed(b"one\ntw") == ["one"]
    assert lines.feed(b"o\nthree\nfo") == ["two", "three"]
    assert lines.show_last(6) == ["two", "three", "fo"]
    assert lines.show_last(1) == ["fo"]
    assert lines.finish() == ["fo"]
    assert list(lines.last) == ["three", "fo"]
    assert lines.finish() == []


def test_output_lines_breaks_a_line_that_never_ends() -> None:
    lines = OutputLines(keep=2)
    count = sum(len(lines.feed(b"x" * 10_000)) for _ in range(100))
    assert 50 < count < 100
