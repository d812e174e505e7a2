# SPDX-License-Identifier: BSD-3-Clause
"""The records that jobs leave of their runs: beside the output, or where that cannot be, with the job's own record.

`cluster/schedulers/script_body` names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedge.errors import FileProblem, InvalidRecord, JobNotFound
from kedge.jobs.records import Record
from kedge.jobs.runs.run_record import SUFFIX, read_record


def read_run_record(record: Record, index: int | None) -> dict[str, Any] | None:
    """The record of a job's run, or of one task of an array; None where it left none."""
    for path in list_places(record, index):
        try:
            return read_record(path)
        except (FileProblem, InvalidRecord):
            continue
    return None


def require_run_record(record: Record, index: int | None) -> dict[str, Any]:
    """Return the record of a job's run; raises JobNotFound where there is none."""
    found = read_run_record(record, index)
    if found is None:
        raise JobNotFound(
            f"job {record.id or record.key} left no record of its run",
            hint="jobs write one when their container starts; only kedge's own runtime does",
        )
    return found


def list_places(record: Record, index: int | None) -> list[Path]:
    """Return where a record of a run can be; beside the output first."""
    suffix = "" if index is None else f".{index}"
    outputs = [ending.output for ending in record.read_endings() if ending.index == index and ending.output]
    return [
        *(Path(f"{output}{suffix}{SUFFIX}") for output in outputs if output.startswith("/")),
        record.folder / f"run{suffix}{SUFFIX}",
    ]
