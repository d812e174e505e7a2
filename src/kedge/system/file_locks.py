# SPDX-License-Identifier: BSD-3-Clause
"""flock(2): locks that end with the last process that holds them, however it ends.

Only for files that one host uses: between hosts flock is not reliable (see lease_holders.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import FileProblem
from kedge.system.files import explained

_UNAVAILABLE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


def lock_file(path: Path, *, wait: bool = True) -> int | None:
    """Make the file if need be and lock it; the open file holds the lock. None when another has it and not to wait."""
    with explained(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    is_ours = False
    try:
        is_ours = take_lock(file, path, wait=wait)
    finally:
        if not is_ours:
            os.close(file)
    return file if is_ours else None


def take_lock(file: int, path: Path, *, wait: bool = True) -> bool:
    """Lock an open file; False when another has it and not to wait."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in _UNAVAILABLE:
            raise
        raise FileProblem(
            f"cannot lock files in {path.parent}: {problem.strerror}",
            context={"path": str(path)},
            hint="choose a directory on a local disk of this host",
        ) from problem
    return True


def is_locked(path: Path) -> bool:
    """Whether a process that lives holds the lock; False for a file that is not there."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock for the block; waits for it."""
    file = lock_file(path)
    assert file is not None  # it was waited for
    try:
        yield
    finally:
        os.close(file)
