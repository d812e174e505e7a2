# SPDX-License-Identifier: BSD-3-Clause
"""Words that somebody else wrote: a recipe, an image, a registry's answer. docs/words-from-outside.md lists where.

A program takes some words for options, and an option may run a command. So such a word is no text: what starts
programs takes it behind `--` alone, an option behind its `=`, and among other words it stands if a grammar has all of
it. mypy refuses the rest.
"""

from __future__ import annotations

from kedge.base.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Sequence
    from typing import NoReturn


@frozen
class Outside:
    """One such word; no text becomes of it by accident."""

    text: str  # for who reads, compares or shows it

    def behind(self, option: str) -> str:
        """`--option=WORD`: the value of an option."""
        return f"{option}={self.text}"

    def read_by(self, pattern: re.Pattern[str]) -> str:
        """The word, if the grammar has all of it and it is no option; raises ValueError where not."""
        if self.text.startswith("-") or not pattern.fullmatch(self.text):
            raise ValueError(self.text)
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> NoReturn:
        raise TypeError("a word from outside is not put into a text: see kedge.system.outside")

    def __format__(self, form: str) -> NoReturn:
        raise TypeError("a word from outside is not put into a text: see kedge.system.outside")


def close_options(argv: Sequence[str], outside: Sequence[Outside]) -> list[str]:
    """A command line that ends with words from outside, none of which is taken for an option."""
    return [*argv, "--", *(word.text for word in outside)] if outside else list(argv)
