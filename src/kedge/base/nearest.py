# SPDX-License-Identifier: BSD-3-Clause
"""Decides when two words are alike enough to propose one for the other: the same rule for verbs, flags, keys, queues.

The rule is strict, because a wrong proposal costs more than none: one letter more, less or other, or two neighbours
swapped. Words from other tools are no misspellings: `model.habits` answers them.
"""

from __future__ import annotations

from collections.abc import Iterable

_SHORTEST = 4  # below it, one edit leads to any word


def propose(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'pull'?`, when a word in `known` is one edit away from `word`."""
    near = find_near(word, known)
    return f"did you mean '{near}'?" if near else None


def find_near(word: str, known: Iterable[str]) -> str | None:
    """The first word of `known` that is one edit away from `word`; upper and lower case are the same letter."""
    typed = word.casefold()
    for candidate in known:
        if max(len(word), len(candidate)) >= _SHORTEST and _is_one_edit(typed, candidate.casefold()):
            return candidate
    return None


def _is_one_edit(first: str, second: str) -> bool:
    """Whether at most one insertion, deletion, replacement or swap of neighbours leads from one to the other."""
    if abs(len(first) - len(second)) > 1:
        return False
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    first, second = first[start:], second[start:]
    if len(first) == len(second):
        return first[1:] == second[1:] or (first[:2] == second[1::-1] and first[2:] == second[2:])
    shorter, longer = sorted((first, second), key=len)
    return longer[1:] == shorter
