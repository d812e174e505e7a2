# SPDX-License-Identifier: BSD-3-Clause
"""Words of a batch script: cut as schedulers cut them, quoted so that people can read them, or refused."""

from __future__ import annotations

import shlex

from kedge.base.patterns import late_pattern
from kedge.errors import InvalidJob

# blanks and quotes end a word, # begins a comment, and a backslash at its end makes PBS read on in the next line
_UNUSABLE = late_pattern(r"[\s\"'\\#\x00-\x1f\x7f]")
_SPECIAL = late_pattern(r'([$`"\\])')


EVERYWHERE, OUTSIDE_QUOTES, BEFORE_HASH = "everywhere", "outside quotes", "before a hash"  # where a backslash escapes


def cut_words(text: str, escapes: str, *, has_comments: bool) -> tuple[list[str], str, str]:
    """The words of a directive's line, the comment behind them, and the quote that is not closed.

    All schedulers cut at blanks and know both kinds of quotes. Where there are comments, they begin at any `#` outside
    of quotes, even inside a word. sbatch lets a backslash escape EVERYWHERE.
    """
    words: list[str] = []
    current: str | None = None  # None: between words, which "" is not
    mark, position = "", 0
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        is_escape = escapes == EVERYWHERE or (not mark and (escapes == OUTSIDE_QUOTES or following == "#"))
        position += 1
        if character == "\\" and is_escape:
            current = (current or "") + following
            position += 1
        elif mark:
            current, mark = (current, "") if character == mark else ((current or "") + character, mark)
        elif character in "\"'":
            current, mark = current or "", character
        elif character == "#" and has_comments:
            return words if current is None else [*words, current], text[position - 1 :], ""
        elif character.isspace():
            words += [] if current is None else [current]
            current = None
        else:
            current = (current or "") + character
    return words if current is None else [*words, current], "", mark


def quote(text: str) -> str:
    """The text as one word: bare where it can be, in double quotes where it holds single ones, else in single ones."""
    if "'" not in text:
        return shlex.quote(text)
    return '"' + _SPECIAL.sub(r"\\\1", text) + '"'


def require_word(text: str, key: str) -> str:
    """The value of a directive, which is one word and no option; raises InvalidJob that names the key."""
    if _UNUSABLE.search(text) or text.startswith("-"):
        raise InvalidJob(
            f"{key}: '{text}' cannot stand in a directive",
            context={"key": key},
            hint="it has blanks, quotes, a backslash, a '#' or a '-' before: remove them",
        )
    return text
