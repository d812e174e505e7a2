# SPDX-License-Identifier: BSD-3-Clause
"""The unpacked copy of a bundle, looked at when something went wrong: cleaners, full disks and crashes damage files.

A start looks at a few files only. When a module is missing or broken, this says so, and takes the mark off the copy:
the next start unpacks the bundle anew.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from kedge.system.start_kedge import find_bundle_copy

_LIST = "files"  # digest, size and name of each file, as tools/bundle/write_bundle.py writes it
_MARK = "complete"


def find_damage() -> str:
    """Say what is wrong with the copy that this process runs from, in a few words; empty: nothing, or there is none."""
    copy = find_bundle_copy()
    if not copy:
        return ""
    try:
        lines = Path(copy, _LIST).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return f"{_LIST} is missing" if Path(copy).is_dir() else "the directory was removed"
    for line in lines:
        digest, _, name = line.split(" ", 2)
        try:
            if hashlib.sha256(Path(copy, name).read_bytes()).hexdigest() != digest:
                return f"{name} was changed"
        except OSError:
            return f"{name} is missing"
    return ""


def discard_copy() -> None:
    """Take the mark off the copy: the next start of the bundle puts a new one in its place."""
    with contextlib.suppress(OSError):  # it is gone, or somebody else did
        Path(find_bundle_copy(), _MARK).unlink()
