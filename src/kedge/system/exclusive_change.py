# SPDX-License-Identifier: BSD-3-Clause
"""Changing a small file that several processes change: read, change and write happen while the others wait.

Without that each reads the same content, the last to write wins, and what the others added is lost though they said
that it was done.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import StoreBusy
from kedge.system.files import explained
from kedge.system.private_files import make_private

_LOCK_PREFIX = ".kedge-lock-"
LOCK_PATIENCE = 10.0  # seconds; such a file is written in milliseconds
_KEPT_NAME = 200  # characters of the file's name in that of its lock, which may have 255 bytes


def lock_beside(target: Path) -> Path:
    """The lock of a file. The file itself cannot be one: each change puts another in its place.

    It lies beside the file, so that all hosts that see the one see the other, and it stays there: where a lock is
    removed, two can hold it. Each file has its own, because a directory such as /tmp may be for several users.
    """
    return target.parent / f"{_LOCK_PREFIX}{target.name[:_KEPT_NAME]}"


@contextlib.contextmanager
def sole_change(target: Path) -> Iterator[None]:
    """Nobody else changes the file during the block, in which it is to be read, too; makes its directory.

    `target` is the file that is replaced, not a link to it.
    """
    lock = lock_beside(target)
    with explained(lock if lock.is_symlink() else target.parent):
        make_private(target.parent)
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(file, target)
        yield
    finally:
        os.close(file)


def _wait_for_lock(file: int, target: Path) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return  # a file system without locks: replacing the file whole is still safe, only not merged
        if time.monotonic() > deadline:
            raise StoreBusy(f"another process is changing {target}", hint="try again in a moment")
        time.sleep(0.02)
