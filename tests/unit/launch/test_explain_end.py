# SPDX-License-Identifier: BSD-3-Clause
"""The clue at the end of a failed launch: from the rank's lines, or from what the launcher said."""

from __future__ import annotations

from kedge.launch.explain_end import find_rank_clue
from kedge.launch.follow_output import RankFailure


def test_clue_comes_from_the_lines_of_the_rank() -> None:
    clue = find_rank_clue(RankFailure(1, 1, lines=("Traceback", "ModuleNotFoundError: No module named 'torch'")))
    assert clue.name == "no-module"


def test_clue_comes_from_the_launcher_where_the_rank_was_killed() -> None:
    said = ("slurmstepd: error: Exceeded job memory limit", "srun: error: n1: task 1: Killed")
    clue = find_rank_clue(RankFailure(1, 137, lines=("step 1",), launcher_lines=said))
    assert clue.name == "job-memory"


def test_clue_that_says_no_more_than_the_lines_is_left_out() -> None:
    lines = ("Traceback (most recent call last):", "ValueError: bad learning rate")
    said = ("srun: error: n1: task 1: Exited with exit code 1",)
    assert find_rank_clue(RankFailure(1, 1, lines=lines, launcher_lines=said)) is None
