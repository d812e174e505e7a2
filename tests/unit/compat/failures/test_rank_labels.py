# SPDX-License-Identifier: BSD-3-Clause
"""Labels of ranks, as launchers write them, and lines that only look labelled."""

from __future__ import annotations

from kedge.compat.failures.rank_labels import remove_colours, split_label
from tests.builders.rows import each_row


@each_row(("line", "rank", "text"), [
    ("0: hello", "0", "hello"), (" 12: hello", "12", "hello"), ("[1,3]<stderr>:hello", "3", "hello"),
    ("[1,0]<stdout>: hello", "0", "hello"), ("[prterun-gpu01-123@1,2]<stderr>: hello", "2", "hello"),
    ("[5] hello", "5", "hello"), ("[rank7]: hello", "7", "hello"), ("[rank: 3] Seed set to 1", "3", "Seed set to 1"),
    ("[default1]:hello", "1", "hello"), ("3: [rank7]: hello", "3", "hello"), ("hello", "", "hello"),
    ("12:30:01 hello", "", "12:30:01 hello"), ("[vm:123] *** error", "", "[vm:123] *** error"), ("[0]:", "", "[0]:"),
    ("", "", ""),
])  # fmt: skip
def test_label_is_split_off(line: str, rank: str, text: str) -> None:
    assert split_label(line) == (rank, text)


def test_colours_are_removed() -> None:
    assert remove_colours("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b[K") == "red x"
    assert remove_colours("plain [31m") == "plain [31m"
