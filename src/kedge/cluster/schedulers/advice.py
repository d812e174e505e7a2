# SPDX-License-Identifier: BSD-3-Clause
"""What to do about the commonest words with which schedulers' programs refuse: pure text."""

from __future__ import annotations

from kedge.cluster.schedulers.choose import list_advice

_DOWN = "the scheduler does not answer: try again in a minute; tell the site if it persists"


def find_advice(said: str) -> str | None:
    """The remedy for what a scheduler's program said, where one is known."""
    lower = said.lower()
    if any(words in lower for advice in list_advice() for words in advice.unreachable):
        return _DOWN
    known = (pair for advice in list_advice() for pair in advice.remedies.items())
    return next((remedy for words, remedy in known if words in lower), None)


def find_missing_setup(said: str) -> tuple[str, str] | None:
    """Return what is wrong and what to do, where a scheduler's program was never told of a cluster."""
    lower = said.lower()
    known = (pair for advice in list_advice() for pair in advice.not_set_up.items())
    return next((explanation for words, explanation in known if words in lower), None)


def is_unreachable(said: str) -> bool:
    """Whether an answer says that the scheduler does not answer, so that other questions are in vain too."""
    lower = said.lower()
    return any(words in lower for advice in list_advice() for words in (*advice.unreachable, *advice.not_set_up))
