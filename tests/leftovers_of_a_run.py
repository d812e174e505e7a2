# SPDX-License-Identifier: BSD-3-Clause
"""What a run of the tests leaves on the machine: names at places where nothing of theirs belongs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

PLACES = ("/", "/etc", "/home", "/opt", "/root", "/srv", "/usr", "/usr/local", "/usr/local/bin", "/var", "/var/lib")
# Of the machine: databases that programs keep a copy of, and what runs beside this one have for a while.
_OTHERS = ("kedge-", "passwd", "group", "gshadow", "shadow", "subuid", "subgid", ".pwd.lock", "ld.so.cache")


def list_names() -> set[str]:
    """What is there now."""
    names: set[str] = set()
    for place in PLACES:
        with suppress(OSError):  # closed to us
            names |= {str(path) for path in Path(place).iterdir() if not path.name.startswith(_OTHERS)}
    return names
