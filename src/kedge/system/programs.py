# SPDX-License-Identifier: BSD-3-Clause
"""Where programs are. An entry of PATH that is empty or relative means the current directory, which others may fill:
no program is ever taken from there.
"""

from __future__ import annotations

import os

_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # users' PATHs often lack them


def find_program(name: str, path: str | None = None, *, also: str = _SYSTEM_FOLDERS) -> str | None:
    """The program's path; None when it is nowhere. `path` is a search path other than ours.

    A name with a slash in it is a path already: it is what the caller says, wherever that leads.
    """
    if "/" in name:
        return name if _is_program(name) else None
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    for folder in f"{searched}:{also}".split(":"):
        if folder.startswith("/") and _is_program(f"{folder}/{name}"):
            return f"{folder.rstrip('/')}/{name}"
    return None


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)  # noqa: PTH113 - on the path of a start
