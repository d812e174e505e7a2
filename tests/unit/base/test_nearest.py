# SPDX-License-Identifier: BSD-3-Clause
"""When one word is proposed for another. Needs nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.base.nearest import find_near, propose
from tests.builders.rows import each_row

VERBS = ("pull", "push", "cache", "cancel", "logs", "exec", "--nv")


@each_row(("word", "near"), [
    ("pul", "pull"),  # a letter less
    ("pulll", "pull"),  # a letter more
    ("poll", "pull"),  # another letter
    ("cahce", "cache"),  # neighbours swapped
    ("PULL", "pull"), ("--nvv", "--nv"), ("clean", None), ("launch", None), ("plul!", None), ("", None),
    ("x" * 100_000, None),
])  # fmt: skip
def test_nearest_is_one_edit_away(word: str, near: str | None) -> None:
    assert find_near(word, VERBS) == near


def test_nearest_leaves_short_words_alone() -> None:
    assert find_near("zhs", ["zsh", "bash"]) is None


def test_nearest_proposes_in_a_sentence() -> None:
    assert propose("cahce", VERBS) == "did you mean 'cache'?"
    assert propose("ps", VERBS) is None


@given(st.text(min_size=4, max_size=12), st.integers(0, 10), st.characters())
def test_nearest_finds_every_single_edit(word: str, place: int, letter: str) -> None:
    place %= len(word)
    edits = (
        word[:place] + letter + word[place:],
        word[:place] + word[place + 1 :],
        word[:place] + letter + word[place + 1 :],
        word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
    )
    for edit in edits:
        if len(edit.casefold()) == len(edit) and len(word.casefold()) == len(word):
            assert find_near(edit, [word]) == word
