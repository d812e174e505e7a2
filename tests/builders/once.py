# SPDX-License-Identifier: BSD-3-Clause
"""What costs seconds to make is made once in a run of the tests, by whichever worker needs it first."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

_VARIABLE = "TESTS_MADE_ONCE"  # workers inherit it from the process that starts them


def open_store() -> None:
    """A place for all workers of this run; `close_store` removes it."""
    os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="kedge-tests-once-")
    Path(os.environ[_VARIABLE]).chmod(0o755)


def close_store() -> None:
    """Nobody needs it any more."""
    shutil.rmtree(os.environ.pop(_VARIABLE))


def make_once(name: str, make: Callable[[Path], object]) -> Path:
    """The file or directory that `make` leaves at the path it is given; all may read it, nobody changes it."""
    made = Path(os.environ[_VARIABLE], name)
    with made.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = made.with_name(f"{name}.half")
            make(half)
            half.rename(made)
    return made
