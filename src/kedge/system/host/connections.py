# SPDX-License-Identifier: BSD-3-Clause
"""The network connections of a process of ours, from /proc: whom it still talks to."""

from __future__ import annotations

import contextlib
from pathlib import Path

_ESTABLISHED = "01"
_TABLES = ("tcp", "tcp6")


def list_peers(pid: int) -> frozenset[str]:
    """The far ends of a process's open TCP connections, as the kernel writes them; empty where that cannot be read."""
    place = Path(f"/proc/{pid}")
    sockets = _list_sockets(place / "fd")
    rows = [row for table in _TABLES for row in _read_rows(place / "net" / table)]
    return frozenset(row[2] for row in rows if row[3] == _ESTABLISHED and f"socket:[{row[9]}]" in sockets)


def _list_sockets(folder: Path) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):  # not ours, or ended
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(str(entry.readlink()))
    return found


def _read_rows(path: Path) -> list[list[str]]:
    try:
        return [row for row in map(str.split, path.read_text().splitlines()) if len(row) > 9]
    except OSError:
        return []
