# SPDX-License-Identifier: BSD-3-Clause
"""Words of a batch script: quoted so that people can read them, or refused where no quoting is to be relied on."""

from __future__ import annotations

import shlex

from kedge.errors import InvalidJob
from kedge.patterns import late_pattern

# blanks and quotes end a word, # begins a comment, and a backslash at its end makes PBS read on in the next line
_UNUSABLE = late_pattern(r"[\s\"'\\#\x00-\x1f\x7f]")
_SPECIAL = late_pattern(r'([$`"\\])')


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
