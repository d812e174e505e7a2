# SPDX-License-Identifier: BSD-3-Clause
"""The way back to the host's tree, for what must be said when a start fails inside the container.

An image chooses names that are looked up there: its working folder, its program. Were the host's root an open file,
/proc/self/fd would lead to it. So it lies in the queue of a socket, which no name leads through.
"""

from __future__ import annotations

import errno
import os

from kedge.posix import libc


class WayBack:
    """Made while the root is the host's; the next program does not have it."""

    def __init__(self) -> None:
        self._stowed = libc.stow_descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def take(self) -> None:
        """Let the host's tree be the root."""
        root = libc.fetch_descriptor(self._stowed)
        try:
            os.fchdir(root)
            os.chroot(".")
        finally:
            os.close(root)


def change_folder(path: str) -> None:
    """Go to a folder of the container; one that lies outside is refused, however its name leads there."""
    os.chdir(path)
    try:
        os.getcwd()  # the kernel finds no name for what cannot be reached from the root
    except OSError:
        os.chdir("/")
        raise PermissionError(errno.EPERM, "it is not in the container", path) from None
