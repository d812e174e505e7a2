# SPDX-License-Identifier: BSD-3-Clause
"""The record of a run as a file: its name, its version, and how one is read without trust. docs/guides/records.md
explains every key.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedge.errors import FileProblem, InvalidRecord, JobNotFound, OutputExists
from kedge.jobs.records import Record
from kedge.system.files import explained

SCHEMA = 1
MARK = "kedge_record"  # the key that says what the file is, and in which version
RUNNING, ENDED = "running", "ended"
SUFFIX = ".record.json"  # beside the output of a job
_LIMIT = 4 << 20  # bytes; a record has a few thousand
_WHERE = "records are the files that --record and --record-to write"


def name_record(host: str, when: float, pid: int) -> str:
    """The name of a record that its user did not name."""
    return f"kedge-run-{time.strftime('%Y%m%d-%H%M%S', time.localtime(when))}-{host.partition('.')[0]}-{pid}.json"


def encode_record(document: Mapping[str, object]) -> bytes:
    """The file's content: ASCII, so that no name in it can steer a terminal."""
    return json.dumps(document, indent=2).encode() + b"\n"


def read_record(path: Path) -> dict[str, Any]:
    """A record as it is in its file; raises InvalidRecord where it is none."""
    with explained(path):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidRecord(f"{path} is not a regular file", hint=_WHERE)
            if status.st_size > _LIMIT:
                raise InvalidRecord(f"{path} is not a record: it has {status.st_size} bytes", hint=_WHERE)
            data = stream.read(_LIMIT)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidRecord(f"{path} is not a record: it is not JSON", hint=_WHERE) from None
    _check(document, path)
    return dict(document)


def _check(document: object, path: Path) -> None:
    version = document.get(MARK) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(version, int):
        raise InvalidRecord(f"{path} is not a record of kedge: it has no key '{MARK}'", hint=_WHERE)
    if version > SCHEMA:
        raise InvalidRecord(
            f"{path} has version {version} of the format, and this kedge reads up to {SCHEMA}",
            hint="use a newer kedge: 'kedge version' shows yours",
        )
    lists = all(is_words(document.get(name)) for name in ("options", "command"))
    texts = all(isinstance(document.get(name), str) for name in ("verb", "directory"))
    parts = ("image", "environment", "host", "times", "exit", "usage")
    if not lists or not texts or not all(isinstance(document.get(name), dict) for name in parts):
        raise InvalidRecord(f"{path} is a damaged record: keys are missing or have the wrong type", hint=_WHERE)


def is_words(value: object) -> bool:
    """Whether a value is a list of text that a command line can have."""
    return isinstance(value, list) and all(isinstance(word, str) and "\0" not in word for word in value)


def refuse_place(path: Path) -> None:
    """Raise where a record must not be written: over a link, or over a file that is no record."""
    with explained(path):
        try:
            status = path.lstat()
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise FileProblem(
                    f"{path.parent} is not a directory", hint="--record-to FILE names a file in a directory that exists"
                ) from None
            return
        if stat.S_ISLNK(status.st_mode):
            raise FileProblem(f"{path} is a symlink: kedge writes no record through it", hint="name another file")
    try:
        read_record(path)
    except (FileProblem, InvalidRecord):
        raise OutputExists(
            f"{path} exists and is not a record of kedge", hint="name another file, or remove this one"
        ) from None


# The records that jobs leave of their runs: beside the output, or where that cannot be, with the job's own record.
#
# `cluster/schedulers/script_body` names them.


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
