# SPDX-License-Identifier: BSD-3-Clause
"""Programs that a test looks for by name: `sleep` for a number of seconds that no other test on this machine has.

Tests run side by side, and so do whole runs of them: a fixed number would find what another one has just started.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path


def make_seconds() -> str:
    """For how long a program of this test sleeps: some years, and no two tests the same."""
    return str(100_000_000 + secrets.randbelow(900_000_000))


def find_sleepers(*seconds: str) -> list[int]:
    """The numbers of the processes that sleep for so long."""
    wanted = {text.encode() for text in seconds}
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if any(word.endswith(b"sleep") for word in words[:2]) and wanted.intersection(words[1:3]):
                found.append(int(path.parent.name))
    return found
