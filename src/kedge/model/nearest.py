# SPDX-License-Identifier: BSD-3-Clause
"""Finds what somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def propose(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'pull'?`, when something in `known` is near enough to `word`."""
    import difflib  # late: only a mistake needs it

    near = difflib.get_close_matches(word[:200], list(known), n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else None
