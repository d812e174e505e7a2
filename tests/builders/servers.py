# SPDX-License-Identifier: BSD-3-Clause
"""FUSE servers of image files: when they have ended, and with that have written everything."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest


def wait_until_unused(path: Path) -> None:
    """Until no process has the file open or in its command line; fails the test when one outlives its container."""
    end = time.monotonic() + 20
    while any(_is_using(process, path) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > end:
            pytest.fail(f"a server of {path} outlives its container")
        time.sleep(0.02)


def _is_using(process: Path, path: Path) -> bool:
    if process.name == str(os.getpid()):
        return False
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        if os.fsencode(path) in words:
            return True
        return any(link.readlink() == path for link in (process / "fd").iterdir())
    except OSError:
        return False  # it has ended, or is another user's
