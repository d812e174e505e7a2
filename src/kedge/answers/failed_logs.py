# SPDX-License-Identifier: BSD-3-Clause
"""Reads logs of any size, of files, of standard input or of jobs, and collects what explains their failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.base.secret_text import mask_secrets
from kedge.cluster.job_state import JobStatus
from kedge.compat.failures.catalogue import CAUSE, CONSEQUENCE, GENERAL, Clue
from kedge.compat.failures.find_clues import remove_colours, search_pieces, sort_clues, split_label
from kedge.errors import FileProblem
from kedge.image.clean_config import clean_text
from kedge.jobs.failure_clues import list_outputs
from kedge.jobs.records import Record
from kedge.system.files import explained

_PIECE = 1 << 20
_TAIL = 1 << 16  # bytes at the end, of which the last lines are shown where nothing was found
_LAST_LINES = 8
_MOST_TASKS = 20  # of an array, whose output is read: thousands fail for one reason


@frozen
class LogDiagnosis(JsonValue):
    """What was searched, and what was found; the likeliest cause first."""

    files: tuple[str, ...]
    clues: tuple[Clue, ...]
    last_lines: tuple[str, ...]  # of the last file, or of the rank that failed, where no cause is known
    size: int  # bytes that were searched

    @property
    def has_failure(self) -> bool:
        """Whether something failed, as far as the logs say."""
        return any(clue.is_failure for clue in self.clues)

    @property
    def has_cause(self) -> bool:
        """Whether the logs say more than that something failed elsewhere."""
        return any(clue.level in (CAUSE, GENERAL) for clue in self.clues)


def diagnose_files(paths: Sequence[Path]) -> LogDiagnosis:
    """Search files, one after the other."""
    return join_diagnoses([_search(str(path), _read_file(path)) for path in paths])


def diagnose_stream(stream: BinaryIO, name: str) -> LogDiagnosis:
    """Search what a pipe brings, up to its end."""
    return _search(name, iter(lambda: stream.read(_PIECE), b""))


def list_job_files(record: Record, statuses: Sequence[JobStatus]) -> list[Path]:
    """The output of a job's tasks: of those that did not complete, if there are such."""
    failed = [status for status in statuses if status.state.is_over and status.outcome != "completed"]
    chosen = (failed or list(statuses))[:_MOST_TASKS]
    paths = [path for status in chosen for path in list_outputs(record, status.index)]
    return list(dict.fromkeys(paths))


def _read_file(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        raise FileProblem(f"{path} is a directory", hint=f"name the logs in it: kedge diagnose {path}/*.out")
    with explained(path), path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


class _Tail:
    """Passes pieces on, and keeps the end of them."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size, self._end = 0, b""

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            self._end = (self._end + piece)[-_TAIL:]
            yield piece

    def list_lines(self, rank: str) -> tuple[str, ...]:
        """The last lines that are not empty, as people may be shown them; of one rank, if its lines are labelled."""
        text = remove_colours(self._end.decode("utf-8", "replace")).replace("\r", "\n")
        written = [line for line in text.splitlines() if line.strip()]
        own = [line for line in written if rank and split_label(line)[0] == rank]
        return tuple(mask_secrets(clean_text(line)) for line in (own or written)[-_LAST_LINES:])


def _search(name: str, pieces: Iterable[bytes]) -> LogDiagnosis:
    tail = _Tail(pieces)
    clues = search_pieces(tail, notes=True, file=name)
    rank = clues[0].rank if clues and clues[0].level == CONSEQUENCE else ""
    return LogDiagnosis((name,), clues, tail.list_lines(rank), tail.size)


def join_diagnoses(parts: Sequence[LogDiagnosis]) -> LogDiagnosis:
    """Several as one; the same failure in several files is told once."""
    if len(parts) == 1:  # as most are
        return parts[0]
    return LogDiagnosis(
        tuple(name for part in parts for name in part.files),
        tuple(_merge(clue for part in parts for clue in part.clues)),
        next((part.last_lines for part in reversed(parts) if part.last_lines), ()),
        sum(part.size for part in parts),
    )


def _merge(clues: Iterable[Clue]) -> list[Clue]:
    merged: dict[str, Clue] = {}
    for clue in clues:
        first = merged.get(clue.name)
        merged[clue.name] = clue if first is None else replace(first, count=first.count + clue.count)
    return sort_clues(merged.values())
