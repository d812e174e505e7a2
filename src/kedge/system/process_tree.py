# SPDX-License-Identifier: BSD-3-Clause
"""The processes that descend from one, from /proc: who they are, what memory they use, and signals to all of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from kedge.base.frozen import frozen
from kedge.errors import UsageError

_PAGE = os.sysconf("SC_PAGE_SIZE")


@frozen
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    session: int
    resident: int  # bytes
    is_dead: bool  # ended, but not yet waited for


def list_processes() -> list[Process]:
    """Return all processes that can be seen."""
    with os.scandir("/proc") as entries:
        processes = (_read_process(entry.name) for entry in entries if entry.name.isdecimal())
        return [process for process in processes if process is not None]


def _read_process(name: str) -> Process | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - thousands of them are read
            fields = file.read().rpartition(b")")[2].split()
        return Process(int(name), int(fields[1]), int(fields[3]), int(fields[21]) * _PAGE, fields[0] in (b"Z", b"X"))
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile


def find_family(root: int, session: int = 0) -> list[Process]:
    """The living descendants of `root`, and everything in `session` with its descendants; `root` is not among them."""
    processes = list_processes()
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    family: dict[int, Process] = {}
    waiting = [process for process in processes if session and process.session == session] + children.get(root, [])
    while waiting:
        process = waiting.pop()
        if process.pid not in family:
            family[process.pid] = process
            waiting += children.get(process.pid, [])
    return [process for process in family.values() if process.pid != root and not process.is_dead]


def parse_signal(text: str) -> signal.Signals:
    """`TERM`, `SIGTERM` or `15`."""
    name = text.upper()
    try:
        return signal.Signals(int(name)) if name.isdigit() else signal.Signals[f"SIG{name.removeprefix('SIG')}"]
    except (ValueError, KeyError):
        raise UsageError(f"unknown signal '{text}'", hint="use a name such as USR1, TERM or KILL") from None


def signal_all(processes: Iterable[Process], number: int) -> None:
    """Send a signal to each that is still there."""
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def count_memory(processes: Iterable[Process]) -> int:
    """Bytes that they use, with what they share counted once; costs some milliseconds per process."""
    return sum(_read_share(process) for process in processes)


def _read_share(process: Process) -> int:
    """What a process has for itself, and its part of what it shares; Linux 4.14."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass  # ended, or an old kernel
    except (OSError, ValueError, IndexError):
        return process.resident
    return process.resident if os.path.exists(f"/proc/{process.pid}") else 0  # noqa: PTH110
