# SPDX-License-Identifier: BSD-3-Clause
"""Why a rank failed, as far as its last lines and those of the launcher say."""

from __future__ import annotations

from kedge.compat.failures.failure import CAUSE, GENERAL, Clue
from kedge.compat.failures.find_clues import find_clues
from kedge.launch.follow_output import RankFailure

_SHOWN_ALREADY = ("python-exception", "mpi-abort")  # what says no more than the lines do that the user sees


def find_rank_clue(failure: RankFailure) -> Clue | None:
    """The likeliest cause; None where no known message explains it."""
    clues = find_clues("\n".join((*failure.lines, *failure.launcher_lines)))
    chosen = (clue for clue in clues if clue.level in (CAUSE, GENERAL) and clue.name not in _SHOWN_ALREADY)
    return next(chosen, None)
