# SPDX-License-Identifier: BSD-3-Clause
"""Finds the likely cause of a failure in the output of a job: known messages at its beginning and end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kedge.cluster.job_state import JobStatus, State
from kedge.compat.failures.catalogue import Clue
from kedge.compat.failures.find_clues import search_pieces, sort_clues
from kedge.jobs.logs import find_logs
from kedge.jobs.records import Record

_HEAD, _TAIL = 64 << 10, 1 << 20  # bytes of a file that are searched; 'kedge diagnose' searches all
_FAILED = (State.FAILED, State.OUT_OF_MEMORY, State.NODE_FAILED, State.TIMEOUT)
_SAID_BY_STATES = ("time-limit", "cancelled")  # what users know already
_MOST_FILES = 4


def find_failure_clue(record: Record | None, status: JobStatus) -> Clue | None:
    """The likeliest cause in the output of a failed task; None if kedge knows no message in it."""
    if record is None or status.state not in _FAILED:
        return None
    clues = [clue for path in list_outputs(record, status.index) for clue in search_pieces(_read_ends(path))]
    return next((clue for clue in sort_clues(clues) if clue.name not in _SAID_BY_STATES), None)


def list_outputs(record: Record, index: int | None) -> list[Path]:
    """The files that a job's tasks wrote, standard output before standard error."""
    paths = [log.path for errors in (False, True) for log in find_logs(record, index, errors=errors)]
    return list(dict.fromkeys(paths))[:_MOST_FILES]


def _read_ends(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size > _HEAD + _TAIL:
                yield file.read(_HEAD) + b"\n"
                file.seek(size - _TAIL)
            yield file.read(_HEAD + _TAIL)
    except OSError:  # it is gone, or not readable
        return
