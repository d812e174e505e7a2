# SPDX-License-Identifier: BSD-3-Clause
"""Blanks and lower case as Go has them: Python counts four control characters more as blanks."""

from __future__ import annotations

_WIDE = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
SPACES = "\t\n\v\f\r " + "".join(map(chr, _WIDE))
_TO_BLANKS = str.maketrans(dict.fromkeys(SPACES, " "))


def trim(text: str) -> str:
    """The text without blanks at both ends."""
    return text.strip(SPACES)


def split_words(text: str) -> list[str]:
    """The words between blanks."""
    return [word for word in text.translate(_TO_BLANKS).split(" ") if word]


def lower(text: str) -> str:
    """The text in lower case, character by character."""
    return text.lower() if text.isascii() else "".join(character.lower()[0] for character in text)


def cut_comment(text: str) -> str:
    """What stands before the first `#`."""
    return text.partition("#")[0]
