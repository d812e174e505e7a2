# SPDX-License-Identifier: BSD-3-Clause
"""Words: the nearest one, secrets that are masked, and the attribute that notes owners."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kedge.base.nearest import find_near, propose
from kedge.base.owner_records import decode_owner, encode_owner
from kedge.base.secret_text import mask_words
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


def test_nearest_proposes_no_short_words() -> None:
    assert find_near("zhs", ["zsh", "bash"]) is None
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


def test_mask_words_hides_values_of_secret_options_and_keeps_others() -> None:
    words = ["train.py", "--lr=0.1", "--api-token", "abc", "--password=x", "-p", "8080", "HF_TOKEN=geheim123"]
    words += ["https://ada:pw@host/x", "Authorization: Bearer abcdefgh12345"]
    assert mask_words(words) == [
        *("train.py", "--lr=0.1", "--api-token", "***", "--password=***", "-p", "8080", "HF_TOKEN=***"),
        *("https://ada:***@host/x", "Authorization: Bearer ***"),
    ]


def test_owner_attribute_is_read_as_it_was_written() -> None:
    assert decode_owner(encode_owner(1000, 50)) == (1000, 50)
    assert decode_owner(encode_owner(0, (1 << 32) - 2)) == (0, (1 << 32) - 2)


@each_row("value", [b"", b":", b"1", b"1:", b":1", b"-1:0", b"1:2:3", b"a:b", b"4294967295:0"])
def test_owner_attribute_that_is_none_counts_for_nothing(value: bytes) -> None:
    assert decode_owner(value) is None
