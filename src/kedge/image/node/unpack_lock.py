# SPDX-License-Identifier: BSD-3-Clause
"""A lock for ranks that find an image missing on this node: one of them has it unpacked, the others wait.

It only saves work: `node_cache_writer` makes sure that nothing is unpacked twice. Nothing is left behind.
"""

from __future__ import annotations

import fcntl
import os
import time

from kedge.base.rank_variables import LOCAL_RANKS
from kedge.image.node_cache import LOCKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATIENCE = 1.0  # seconds until kedge says that it waits


def speaks_for_others(environ: Mapping[str, str]) -> bool:
    """Whether this process says that it waits: of a launcher's ranks on this node only the first two do."""
    return all(environ.get(name, "0") in ("0", "1") for name in LOCAL_RANKS)


class UnpackLock:
    """One process's claim; `place` is the user's directory on this node, `name` fits a file name."""

    def __init__(self, place: str, name: str) -> None:
        self._path = f"{place}/{LOCKS}/{name}"
        self._file = -1
        self._is_ours = False
        try:
            if not os.path.isdir(f"{place}/{LOCKS}"):
                os.makedirs(f"{place}/{LOCKS}", 0o700, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # the process that unpacks reports why nothing can be written there

    def acquire(self, tell: Callable[[str], None]) -> None:
        """Wait for the lock. Then look whether the image is there now: another process may have unpacked it."""
        if self._file < 0:
            return
        try:
            if not self._try():
                self._wait(tell)
            self._is_ours = True
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d" % os.getpid(), 0)
        except OSError:
            return  # no locks or no room there: all processes go on at once

    def release(self) -> None:
        """Let the next process go on."""
        if self._file < 0:
            return
        try:
            if self._is_ours and self._is_current():
                os.unlink(self._path)
        except OSError:
            pass  # a cleaner of /tmp was here
        os.close(self._file)
        self._file = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, tell: Callable[[str], None]) -> None:
        """Wait, silently at first."""
        end, pause = time.monotonic() + _PATIENCE, 0.01
        while time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            if self._try():
                return
        who = os.pread(self._file, 20, 0).decode("ascii", "replace")
        tell(f"waiting for {f'process {who}' if who else 'another process'}, which is unpacking the image")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return False
