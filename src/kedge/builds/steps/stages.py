# SPDX-License-Identifier: BSD-3-Clause
"""Which stages a build needs, and their order: those that do not wait for each other run side by side.

The first failure ends the steps of all other stages; what is raised is that failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kedge.builds.step_values import Stage, name_stage
from kedge.errors import BuildFailed

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
_MOST_STAGES = 8  # at once


class StageCancelled(BuildFailed):
    """A stage that was given up because another one failed."""


class Cancellation:
    """Whether a build is to end; shared by the threads of its stages."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def request(self) -> None:
        """End what runs, and begin nothing new."""
        self._event.set()

    def is_requested(self) -> bool:
        """Whether the build is to end."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise StageCancelled once it was asked."""
        if self._event.is_set():
            raise StageCancelled("the build was given up: another stage failed")


def list_needed(stages: Sequence[Stage], target: Stage) -> list[Stage]:
    """The target and all that it needs, in their order."""
    by_index = {stage.index: stage for stage in stages}
    needed: set[int] = set()
    pending = [target.index]
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            pending += by_index[index].needs
    return [by_index[index] for index in sorted(needed)]


def name_stages(stages: Sequence[Stage]) -> dict[int, str]:
    """What displays call the stages, by number: their names; the only stage needs none."""
    if len(stages) == 1:
        return {stages[0].index: stages[0].name}
    return {stage.index: name_stage(stage) for stage in stages}


def run_stages(
    stages: Sequence[Stage], work: Callable[[Stage, Callable[[int], T]], T], cancellation: Cancellation
) -> dict[int, T]:
    """Do the work of all stages; `work` gets a function that waits for the result of an earlier stage.

    A stage waits only for those before it, which begin first: so many threads as there are do not wait in a circle.
    """
    futures: dict[int, Future[T]] = {}
    if len(stages) == 1:
        return {stages[0].index: work(stages[0], lambda index: _wait_for(futures[index], cancellation))}
    from concurrent.futures import ThreadPoolExecutor  # late: one stage needs no threads

    with ThreadPoolExecutor(min(len(stages), _MOST_STAGES), thread_name_prefix="kedge-stage") as pool:
        try:
            for stage in stages:
                futures[stage.index] = pool.submit(_guarded, stage, work, futures, cancellation)
            return {index: future.result() for index, future in futures.items()}
        except BaseException:
            cancellation.request()
            pool.shutdown(wait=True, cancel_futures=True)
            _raise_first(futures)
            raise


def _guarded(
    stage: Stage,
    work: Callable[[Stage, Callable[[int], T]], T],
    futures: Mapping[int, Future[T]],
    cancellation: Cancellation,
) -> T:
    cancellation.check()
    try:
        return work(stage, lambda index: _wait_for(futures[index], cancellation))
    except BaseException:
        cancellation.request()
        raise


def _wait_for(future: Future[T], cancellation: Cancellation) -> T:
    while True:
        try:
            return future.result(timeout=0.2)
        except TimeoutError:
            cancellation.check()
        except BaseException as problem:
            raise StageCancelled("the build was given up: a stage that this one needs failed") from problem


def _raise_first(futures: Mapping[int, Future[T]]) -> None:
    """Raise why the build failed, and not that other stages were given up."""
    for future in futures.values():
        problem = future.exception() if future.done() and not future.cancelled() else None
        if problem is not None and not isinstance(problem, StageCancelled):
            raise problem
