# SPDX-License-Identifier: BSD-3-Clause
"""A test of many rows goes through all of them and names each that fails."""

from __future__ import annotations

import pytest

from tests.builders.rows import each_row


def test_rows_that_fail_are_all_named() -> None:
    seen = []

    @each_row(("text", "length"), [("a", 1), ("bc", 1), ("def", 3), ("g", 0)])
    def check(text: str, length: int) -> None:
        seen.append(text)
        assert len(text) == length

    with pytest.raises(BaseExceptionGroup) as caught:
        check()
    assert seen == ["a", "bc", "def", "g"]
    assert "2 of 4 rows failed" in caught.value.message
    for words in ("row 1: text='bc', length=1", "row 3: text='g', length=0"):
        assert words in caught.value.message
    assert len(caught.value.exceptions) == 2

    @each_row("text", ["1", "one"], ids=["figure", "word"])
    def check(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="row 0: figure\n    DID NOT RAISE"):
        check()


def test_rows_that_hold_pass_and_no_rows_are_a_mistake() -> None:
    @each_row("length", [1, 2], ids=lambda length: f"of {length}")
    @each_row("letter", "ab")
    def check(letter: str, length: int, known: dict[str, int]) -> None:
        known[letter * length] = length

    known: dict[str, int] = {}
    check(known=known)
    assert sorted(known) == ["a", "aa", "b", "bb"]
    with pytest.raises(AssertionError, match="no rows"):
        each_row("text", [])
