# SPDX-License-Identifier: BSD-3-Clause
"""The driver branches that clusters have, and what is said where nobody knows which of them it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.frozen import frozen
from kedge.base.versions import order

if TYPE_CHECKING:
    from kedge.compat.tables.load import Tables

# The branches that clusters stay on for long; newer ones are those that the tables name.
_USUAL_BRANCHES = (470, 525, 535, 550, 570, 580)
FIND_DRIVER = (
    "run 'kedge doctor' in a job on such a node, and kedge remembers its driver; or read it there with nvidia-smi and "
    "give it with --driver VERSION"
)


@frozen
class DriverChoice:
    """The tag to take with the drivers of one branch."""

    branch: int  # 535
    cuda: str  # 12.2: the newest that the branch offers by itself; empty: unknown
    tag: str
    outcome: str


def list_branches(tables: Tables) -> list[int]:
    """The branches in use, oldest first."""
    return sorted(set(_USUAL_BRANCHES) | {branch for branch in find_newest(tables) if branch > _USUAL_BRANCHES[-1]})


def find_newest(tables: Tables) -> dict[int, str]:
    """The newest driver of each branch that the tables name."""
    newest: dict[int, str] = {}
    for driver in [*(row.min_driver for row in tables.cuda), *(row.bundled_driver for row in tables.releases)]:
        fields = order(driver)
        if len(fields) > 1 and fields > order(newest.get(fields[0], "")):
            newest[fields[0]] = driver
    return newest


def tell_choices(name: str, where: str, choices: Sequence[DriverChoice], ways: dict[str, str]) -> str:
    """The sentence where the tag depends on the driver."""
    listed = "; ".join(
        f"{choice.branch}: {choice.tag}{'' if ways[choice.outcome] == 'natively' else f' ({ways[choice.outcome]})'}"
        for choice in choices
    )
    return (
        f"The newest tag of {name} that runs natively depends on the driver of {where}, which is unknown. "
        f"Driver {listed}."
    )


def tell_same(choices: Sequence[DriverChoice]) -> str:
    """Return the note where all branches that give an answer give the same."""
    first, last = choices[0].branch, choices[-1].branch
    if len(choices) == 1:
        return f"the driver is unknown; of the branches in use, only {first} runs any tag"
    return f"the driver is unknown; the tag is the same for all branches in use, {first} to {last}"
