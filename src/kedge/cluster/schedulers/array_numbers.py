# SPDX-License-Identifier: BSD-3-Clause
"""Indices of an array's tasks, as the user wrote them, and the numbers a scheduler counts them by.

Grid Engine counts from 1, and neither it nor PBS takes a list: then the tasks are 1, 2, 3 … and the script looks up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kedge.base.frozen import replace
from kedge.cluster.job import JobArray
from kedge.cluster.job_state import JobStatus
from kedge.cluster.schedulers.choose import find_facts

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def can_renumber(scheduler: str) -> bool:
    """Whether tasks may have other numbers there than the user's indices."""
    return not find_facts(scheduler).has_array_lists


def find_number(scheduler: str, array: JobArray, index: int) -> int | None:
    """The scheduler's number of a task; None for the one task of an array that is a plain job there."""
    indices = array.indices
    if len(indices) == 1 and not find_facts(scheduler).has_single_arrays:
        return None
    return indices.index(index) + 1 if _is_renumbered(scheduler, array) else index


def restore_indices(scheduler: str, array: JobArray, statuses: Sequence[JobStatus]) -> list[JobStatus]:
    """What a scheduler says of an array, with the user's indices."""
    indices = array.indices
    if len(indices) == 1:  # PBS has no arrays of one, so its answer has no number
        return [status if status.pending_indices else replace(status, index=indices[0]) for status in statuses]
    if not _is_renumbered(scheduler, array):
        return list(statuses)
    return [_restore(status, indices) for status in statuses]


def _restore(status: JobStatus, indices: Sequence[int]) -> JobStatus:
    if status.index is not None and 1 <= status.index <= len(indices):
        return replace(status, index=indices[status.index - 1])
    if status.pending_indices:
        numbers = _expand(status.pending_indices, len(indices))
        return replace(status, pending_indices=_compress([indices[number - 1] for number in numbers]))
    return status


def _is_renumbered(scheduler: str, array: JobArray) -> bool:
    if not can_renumber(scheduler):
        return False
    return len(array.ranges) > 1 or min(array.indices) < find_facts(scheduler).first_index


def _expand(text: str, count: int) -> list[int]:
    """The numbers of `1-5:2,7` between 1 and `count`."""
    numbers: set[int] = set()
    for found in _RANGE.finditer(text):
        first, step = int(found[1]), int(found[3] or 1) or 1
        numbers.update(range(first, min(int(found[2] or first), count) + 1, step))
    return sorted(number for number in numbers if 1 <= number <= count)


def _compress(indices: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
