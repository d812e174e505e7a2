# SPDX-License-Identifier: BSD-3-Clause
"""The way back to the host's tree, for what must be said when a start fails inside the container.

An image chooses names that are looked up there: its working directory, its program. Were the host's root an open file,
/proc/self/fd would lead to it. So it lies in the queue of a socket, which no name leads through. Modules are names
too: Python would look for one that it still needs in the image, and run what it finds.
"""

from __future__ import annotations

import errno
import os
import sys

from kedge.posix import libc


class HostRoot:
    """Made while the root is the host's; the next program does not have it."""

    def __init__(self) -> None:
        found = os.stat("/")
        self._root = found.st_dev, found.st_ino
        self._finders = list(sys.meta_path)
        self._stowed = libc.stow_descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def leave(self) -> None:
        """Called just before the root is another's: from here on no module is read from a file."""
        # the finders of that module know what is built into Python; all others look into directories
        sys.meta_path[:] = [finder for finder in self._finders if finder.__module__ == "_frozen_importlib"]

    def restore(self) -> None:
        """Let the host's tree be the root, and modules be found again."""
        root = libc.fetch_descriptor(self._stowed)
        try:
            os.fchdir(root)
            os.chroot(".")
        finally:
            os.close(root)
        sys.meta_path[:] = self._finders

    def restore_if_inside(self) -> None:
        """The same, where the root is another's now: whoever reports a failure needs modules of the host."""
        found = os.stat("/")
        if (found.st_dev, found.st_ino) != self._root:
            self.restore()
        sys.meta_path[:] = self._finders


def change_directory(path: str) -> None:
    """Go to a directory of the container; one that lies outside is refused, however its name leads there."""
    os.chdir(path)
    try:
        os.getcwd()  # the kernel finds no name for what cannot be reached from the root
    except OSError:
        os.chdir("/")
        raise PermissionError(errno.EPERM, "it is not in the container", path) from None
