# SPDX-License-Identifier: BSD-3-Clause
"""A user's value as one word of a directive, or of a scheduler's command line, where no quoting is to be relied on."""

from __future__ import annotations

from kedge.errors import InvalidJob
from kedge.patterns import late_pattern

# blanks and quotes end a word, # begins a comment, and a backslash at its end makes PBS read on in the next line
_UNUSABLE = late_pattern(r"[\s\"'\\#\x00-\x1f\x7f]")


def require_word(text: str, key: str) -> str:
    """The value, which is one word and no option; raises InvalidJob that names the key."""
    if _UNUSABLE.search(text) or text.startswith("-"):
        raise InvalidJob(
            f"{key}: '{text}' cannot stand in a directive",
            context={"key": key},
            hint="it has blanks, quotes, a backslash, a '#' or a '-' before: remove them",
        )
    return text
