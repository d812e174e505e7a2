# SPDX-License-Identifier: BSD-3-Clause
"""The processes that the tests' own process has started and not waited for."""

from __future__ import annotations

import contextlib
from pathlib import Path


def list_children() -> list[str]:
    """Their numbers, whichever thread started them."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += (task / "children").read_text().split()
    return found
