# SPDX-License-Identifier: BSD-3-Clause
"""Reads files that users name as keys, with a bound on their size."""

from __future__ import annotations

from pathlib import Path

from kedge.errors import FileProblem
from kedge.system.files import explained

_MAXIMUM_KEY_FILE = 8 << 20


def read_key_file(path: Path, *, limit: int = _MAXIMUM_KEY_FILE) -> bytes:
    """The content of the file; refuses a file too large for a key."""
    with explained(path), path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileProblem(f"{path} is too large to be a key: more than {limit >> 20} MiB", context={"path": str(path)})
    return data
