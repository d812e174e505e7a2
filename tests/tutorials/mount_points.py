# SPDX-License-Identifier: BSD-3-Clause
"""Directories of the machine on which runs of the tests mount something, each in namespaces of its own.

The kernel lets a directory be removed that is a mount point elsewhere, and unmounts it there: who leaves must not take
it from runs that go on beside it. So each holds a lock on it, and the last one removes it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OURS = 0o1711  # as nobody else makes it: a directory of the machine's own stays


@contextmanager
def mount_point(path: Path) -> Iterator[None]:
    """The directory is there; where the machine has none, it is gone when its last user leaves."""
    place = _hold(path)
    try:
        yield
        with suppress(OSError):  # others hold it, or something lies in it
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(place).st_mode & 0o7777 == _OURS:
                path.rmdir()
    finally:
        os.close(place)


def _hold(path: Path) -> int:
    while True:
        with suppress(FileExistsError):
            path.mkdir()
            path.chmod(_OURS)
        with suppress(FileNotFoundError):
            place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(place, fcntl.LOCK_SH)  # waits while somebody is about to remove it
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(place).st_ino:
                    return place
            os.close(place)
