# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a container while programs run in it: they may put a link where a folder was a moment ago.

So the kernel finds each name, in one call that never leaves the root (Linux 5.6); before that, as for a still tree.
"""

from __future__ import annotations

import errno
import os
import stat

from kedge.posix import libc
from kedge.runtime.views import FolderView

_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f"}


class LiveView(FolderView):
    """The tree of a running container, whose root is the open folder `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(f"/proc/self/fd/{descriptor}")
        self.descriptor = descriptor

    def _open(self, path: str, flags: int) -> int:
        """A descriptor of what the name leads to inside the root; -1 when there is nothing."""
        try:
            return libc.open_in_root(self.descriptor, path, flags | os.O_CLOEXEC)
        except (OSError, ValueError) as problem:
            if not isinstance(problem, OSError) or problem.errno != errno.ENOSYS:
                return -1
        try:
            return os.open(self.locate(path), flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return -1

    def _mode(self, path: str) -> int:
        file = self._open(path, os.O_PATH)
        if file < 0:
            return 0
        try:
            return os.fstat(file).st_mode
        finally:
            os.close(file)

    def kind(self, path: str) -> str:
        """`d` folder, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        mode = self._mode(path)
        return _KINDS.get(stat.S_IFMT(mode), "c") if mode else ""

    def is_executable(self, path: str) -> bool:
        """Whether it is a file with an execute bit."""
        mode = self._mode(path)
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        if file < 0:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            pieces = []
            while limit > 0 and (piece := os.pread(file, limit, offset)):
                pieces.append(piece)
                limit, offset = limit - len(piece), offset + len(piece)
            return b"".join(pieces)
        except OSError:
            return None
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """What is in a folder, sorted; empty when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        if file < 0:
            return []
        try:
            return sorted(os.listdir(file))
        except OSError:
            return []
        finally:
            os.close(file)
