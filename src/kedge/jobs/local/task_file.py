# SPDX-License-Identifier: BSD-3-Clause
"""What happened to one task of a job: a file of lines that only grows, one JSON object per event.

Its name says how far the task is: `running`, then `done` or `failed`, with `.INDEX` in arrays. While the task's runner
lives it holds the file's lock, so a runner that was killed is known by its absence.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from kedge.base.frozen import frozen, list_names
from kedge.cluster.job_state import State
from kedge.system.private_files import open_own_file, read_own_file

_LIMIT = 1 << 20  # bytes; the events of a task have a few hundred
RUNNING, DONE, FAILED, CANCEL = "running", "done", "failed", "cancel"


def name_task(kind: str, index: int | None) -> str:
    """`running`, `running.3`."""
    return kind if index is None else f"{kind}.{index}"


@frozen
class TaskHistory:
    """The events so far, as one value; times are seconds since 1970."""

    granted: float | None = None  # it was given its part of the machine
    gpus: tuple[str, ...] = ()
    begun: float | None = None  # its program is about to start, or has
    pid: int = 0
    start: int = 0  # of the process, which tells a reused pid apart
    machine: str = ""
    ending: str = ""  # the state that it will end in, once its processes are gone
    ended: float | None = None
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


def append_event(file: int, **fields: object) -> None:
    """Add an event to the open file, in one write."""
    os.write(file, json.dumps(fields).encode() + b"\n")


def end_task(file: int, path: Path, **fields: object) -> None:
    """Add the last event, and give the file the name of how it went, which a full disk does not prevent."""
    with contextlib.suppress(OSError):
        append_event(file, ended=time.time(), **fields)
    rename_ended(path, str(fields["state"]))


def rename_ended(path: Path, state: str) -> None:
    """From `running.3` to `done.3` or `failed.3`."""
    kind = DONE if state == State.DONE else FAILED
    path.rename(path.with_name(kind + path.name.removeprefix(RUNNING)))


def open_task(path: Path, *, create: bool = False) -> int:
    """Open it for events; with `create` it must not be there yet."""
    if create:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    return open_own_file(path, os.O_RDWR | os.O_APPEND)


def read_task(path: Path) -> TaskHistory:
    """The events of a file; what cannot be read, such as a line that is just being written, is passed over."""
    fields: dict[str, object] = {}
    try:
        data = read_own_file(path, _LIMIT)
    except OSError:
        return TaskHistory()
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            fields |= {name: value for name, value in event.items() if name in list_names(TaskHistory)}
    gpus = fields.get("gpus")
    fields["gpus"] = tuple(map(str, gpus)) if isinstance(gpus, list) else ()
    return TaskHistory(**fields)  # type: ignore[arg-type]  # the queue's own files; a wrong type shows as it is
