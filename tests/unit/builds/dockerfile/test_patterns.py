# SPDX-License-Identifier: BSD-3-Clause
"""Patterns of the shell match what a regular expression would, and take no longer for odd ones."""

from __future__ import annotations

import random
import re
import time

import pytest

from kedge.builds.dockerfile.expand import PatternError, replace_pattern, trim_prefix, trim_suffix
from tests.builders.rows import each_row, with_rows


def _compile(pattern: str, star: str) -> str:
    return "".join(star if letter == "*" else "." if letter == "?" else re.escape(letter) for letter in pattern)


def test_patterns_agree_with_regular_expressions() -> None:
    dice = random.Random(13)
    for _ in range(1000):
        value = "".join(dice.choices("aab.", k=dice.randrange(9)))
        pattern = "".join(dice.choices("ab.*?", k=dice.randrange(6)))
        for is_longest in (False, True):
            star = ".*" if is_longest else ".*?"
            expected = re.sub(rf"\A{_compile(pattern, star)}", "", value, count=1)
            assert trim_prefix(value, pattern, is_longest=is_longest) == expected
            backwards = re.sub(rf"\A{_compile(pattern[::-1], star)}", "", value[::-1], count=1)[::-1]
            assert trim_suffix(value, pattern, is_longest=is_longest) == backwards
        expected = re.sub(_compile(pattern, ".*"), "-", value, count=1)
        assert replace_pattern(value, pattern, "-", everywhere=False, room=99) == expected


@with_rows(
    ("aXbXc", "X", "a-b-c"), ("aaa", "aa", "-a"), ("abc", "", "-a-b-c-"), ("abab", "a*", "-"), ("abc", "?", "---")
)
def test_patterns_replace_all(value: str, pattern: str, result: str) -> None:
    assert replace_pattern(value, pattern, "-", everywhere=True, room=99) == result


@each_row("pattern", ["\\", "\\x", "a\\\\\\"])
def test_patterns_refuse_unknown_escapes(pattern: str) -> None:
    with pytest.raises(PatternError):
        trim_prefix("a", pattern, is_longest=False)


def test_patterns_with_many_stars_take_no_time() -> None:
    begin = time.process_time()
    trim_prefix("a" * 20000, "*a" * 50 + "*b", is_longest=True)
    assert time.process_time() - begin < 2
