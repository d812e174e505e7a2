# SPDX-License-Identifier: BSD-3-Clause
"""Finds the output files of jobs, and follows them as they grow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.cluster.job import JobArray
from kedge.cluster.output_pattern import fill_pattern
from kedge.errors import FileProblem, JobNotFound
from kedge.jobs.records import Record
from kedge.system.files import explained

_PIECE = 1 << 16
_GLANCE = 0.3  # seconds
_OFTEN, _SELDOM = 1.0, 5.0  # seconds between two questions to the scheduler
_LINGER = 2.0  # seconds until a shared file system shows what a node wrote last


@frozen
class LogFile:
    """One file of output."""

    path: Path
    index: int | None = None


def find_logs(record: Record, index: int | None = None, *, errors: bool = False) -> list[LogFile]:
    """The existing output files of a job's tasks: as their scripts noted them, else by the pattern."""
    endings = [ending for ending in record.read_endings() if index is None or ending.index == index]
    noted = [LogFile(Path(ending.error if errors else ending.output), ending.index) for ending in endings]
    existing = [log for log in noted if log.path.is_file()]
    pattern = (record.error or record.output) if errors else record.output
    return existing or [LogFile(path, index) for path in _match(pattern, record, index)]


def require_logs(record: Record, index: int | None = None, *, errors: bool = False) -> list[LogFile]:
    """Return the files of a job's output; raises an error that names the expected file if there is none."""
    logs = find_logs(record, index, errors=errors)
    if logs:
        return logs
    pattern = record.output.replace("{index}", "INDEX") if index is None else record.output
    shown = fill_pattern(pattern, name=record.name, id=record.id or "ID", index=index)
    if index is not None and record.is_array and index not in JobArray.parse(str(record.job["array"])).indices:
        raise JobNotFound(f"job {record.id} has no task {index}", hint=f"its tasks are {record.job['array']}")
    named = record.typed_id or record.key
    if shown == os.devnull:
        raise FileProblem(
            f"job {record.id or record.name} wrote its output to {os.devnull}, so it is lost",
            hint="leave out -o next time to keep the output",
        )
    raise FileProblem(
        f"job {record.id or record.name} has written no output yet",
        context={"file": shown},
        hint=f"see its state: kedge status {named}; wait for output: kedge logs -f {named}",
    )


def read_log(log: LogFile, lines: int | None = None) -> Iterator[bytes]:
    """The whole file in pieces, or its last lines."""
    with explained(log.path), log.path.open("rb") as file:
        if lines is not None:
            file.seek(_find_tail(log.path, lines))
        while piece := file.read(_PIECE):
            yield piece


def follow_logs(
    find: Callable[[], list[LogFile]],
    is_over: Callable[[], bool],
    has_ended: Callable[[], bool],
    lines: int | None = None,
) -> Iterator[tuple[LogFile, bytes]]:
    """Pieces of all files as they grow, until the job is over and all was read.

    `is_over` asks the scheduler, which is done more often once the script says that it `has_ended`.
    """
    places: dict[Path, int] = {}
    asked, over_since = time.monotonic() - _SELDOM + _OFTEN, 0.0
    while True:
        grew = False
        for log in find():
            if log.path not in places:
                places[log.path] = _find_tail(log.path, lines) if lines is not None else 0
            for piece in _read_on(log.path, places):
                grew = True
                yield log, piece
        if over_since and not grew and time.monotonic() - over_since > _LINGER:
            return
        if not over_since and time.monotonic() - asked > (_OFTEN if has_ended() else _SELDOM):
            over_since = time.monotonic() if is_over() else 0.0
            asked = time.monotonic()
        time.sleep(_GLANCE)


def _read_on(path: Path, places: dict[Path, int]) -> Iterator[bytes]:
    with contextlib.suppress(OSError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < places[path]:
            places[path] = 0  # written anew, as after a requeue
        file.seek(places[path])
        while piece := file.read(_PIECE):
            places[path] += len(piece)
            yield piece


def _find_tail(path: Path, lines: int) -> int:
    """The offset at which the last lines begin."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        if not lines:
            return place
        place = max(place - 1, 0)  # the final line break begins no line
        while place > 0:
            begin = max(place - _PIECE, 0)
            file.seek(begin)
            piece = file.read(place - begin)
            offset = len(piece)
            while (offset := piece.rfind(b"\n", 0, offset)) >= 0:
                lines -= 1
                if not lines:
                    return begin + offset + 1
            place = begin
    return 0


def _match(pattern: str, record: Record, index: int | None) -> list[Path]:
    """The files that match the pattern; of all tasks if no index is given."""
    if "{index}" not in pattern or index is not None or not record.is_array:
        indices: list[int | None] = [index]
    else:
        indices = list(JobArray.parse(str(record.job["array"])).indices)
    names = [fill_pattern(pattern, name=record.name, id=record.id, index=task) for task in indices]
    return [Path(name) for name in names if Path(name).is_file()]
