# SPDX-License-Identifier: BSD-3-Clause
"""Taking turns: of many ranks that find an image missing on this node one has it made ready, the others wait for it.

It only saves work; that nothing is unpacked twice is the business of who unpacks. Nothing is left behind.
"""

from __future__ import annotations

import fcntl
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATIENCE = 1.0  # seconds until it is worth a word that we wait
_LOCAL_RANKS = (
    *("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"),
)


def speaks_for_others(environ: Mapping[str, str]) -> bool:
    """Whether a process should say that it waits: of a launcher's ranks on this node two do, one of which may work."""
    return all(environ.get(name, "0") in ("0", "1") for name in _LOCAL_RANKS)


class Turn:
    """The turn of one process; `place` is the user's directory on this node, `name` fits a file's."""

    def __init__(self, place: str, name: str) -> None:
        self._path = f"{place}/turns/{name}"
        self._file = -1
        self._is_ours = False
        try:
            if not os.path.isdir(f"{place}/turns"):
                os.makedirs(f"{place}/turns", 0o700, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # whoever cannot write there will be told why by the one who unpacks

    def take(self, tell: Callable[[str], None]) -> None:
        """Wait for it. Then look whether the image is there now: another may have had its turn before us."""
        if self._file < 0:
            return
        try:
            if not self._try():
                self._wait(tell)
            self._is_ours = True
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d" % os.getpid(), 0)
        except OSError:
            return  # a place without locks or room: all go on at once

    def end(self) -> None:
        """Let the next go on."""
        if self._file < 0:
            return
        try:
            if self._is_ours and self._is_current():
                os.unlink(self._path)
        except OSError:
            pass  # a cleaner was here
        os.close(self._file)
        self._file = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, tell: Callable[[str], None]) -> None:
        """Wait, without a word at first."""
        end, pause = time.monotonic() + _PATIENCE, 0.01
        while time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            if self._try():
                return
        who = os.pread(self._file, 20, 0).decode("ascii", "replace")
        tell(f"waiting for {f'process {who}' if who else 'another process'}, which makes the image ready")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return False
