# SPDX-License-Identifier: BSD-3-Clause
"""Finds the likely cause of a failure in the output of a job: known messages at its end."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.compat.error_messages import Clue, find_clues
from kedge.jobs.records import Record
from kedge.model.job_state import JobStatus, State
from kedge.ops.jobs.logs import find_logs

_TAIL = 256 << 10  # bytes at the end of a file that are searched


def find_failure_clue(record: Record | None, status: JobStatus) -> Clue | None:
    """The likeliest cause in the output of a failed task; None if kedge knows no message in it."""
    if record is None or status.state is not State.FAILED:
        return None
    paths = [log.path for errors in (False, True) for log in find_logs(record, status.index, errors=errors)]
    text = "\n".join(_read_tail(path) for path in dict.fromkeys(paths[:4]))
    return next(iter(find_clues(text)), None)


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            return file.read(_TAIL).decode("utf-8", "replace")
    except OSError:  # it is gone, or not readable
        return ""
