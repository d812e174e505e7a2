# SPDX-License-Identifier: BSD-3-Clause
"""Which stages are built, side by side, and what a failure of one does to the others."""

from __future__ import annotations

import threading

import pytest

from kedge.builds.read_recipe import read_recipe
from kedge.builds.steps.stages import Cancellation, StageCancelled, list_needed, run_stages
from kedge.errors import BuildFailed

RECIPE = b"""FROM scratch AS a
FROM scratch AS unused
FROM scratch AS b
FROM scratch
COPY --from=a / /a
COPY --from=b / /b
"""


def read():
    return read_recipe(RECIPE, "Dockerfile")


def run(work) -> dict[int, str]:
    recipe = read()
    return run_stages(list_needed(recipe.stages, recipe.target), work, Cancellation())


def test_stages_that_are_needed_run_in_order() -> None:
    recipe = read()
    assert [stage.index for stage in list_needed(recipe.stages, recipe.target)] == [0, 2, 3]
    assert [stage.index for stage in list_needed(recipe.stages, recipe.stages[1])] == [1]
    recipe = read_recipe(b"FROM scratch\n", "Dockerfile")
    threads = run_stages([recipe.target], lambda _stage, _wait: threading.current_thread().name, Cancellation())
    assert threads == {0: threading.current_thread().name}


def test_stages_run_side_by_side_and_wait_for_each_other() -> None:
    meeting = threading.Barrier(2, timeout=20)

    def work(stage, wait_for) -> str:
        if stage.index < 3:
            meeting.wait()  # each needs the other to be there
            return stage.name
        return wait_for(0) + wait_for(2)

    assert run(work) == {0: "a", 2: "b", 3: "ab"}


def test_first_failure_is_raised_and_the_others_are_cancelled() -> None:
    cancelled: list[int] = []
    recipe = read()
    cancellation = Cancellation()

    def work(stage, wait_for) -> str:
        try:
            if stage.index == 2:
                raise BuildFailed("this one")
            if stage.index == 0:
                while not cancellation.is_requested():
                    threading.Event().wait(0.01)
                cancellation.check()
            return wait_for(0) + wait_for(2)
        except StageCancelled:
            cancelled.append(stage.index)
            raise

    with pytest.raises(BuildFailed, match="this one"):
        run_stages(list_needed(recipe.stages, recipe.target), work, cancellation)
    assert 0 in cancelled
