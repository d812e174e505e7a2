# SPDX-License-Identifier: BSD-3-Clause
"""A program of ours that runs inside a container without being in its image: held open, and started by its number.

A bind would change the container, and ranks share one only where it is the same. A copy in memory also runs where the
directory of kedge is mounted noexec, or is not readable once this process is in a user namespace.
"""

from __future__ import annotations

import os

from kedge.system.memory_program import create_memory_file, seal_file

_PIECE = 64 << 10


def hold_program(path: str) -> str:
    """Open a program so that this process and what it becomes can start it; returns the path to start it by.

    OSError where it cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        held = create_memory_file()
    except OSError:  # vm.memfd_noexec
        held = file
    else:
        while content := os.read(file, _PIECE):
            os.write(held, content)
        os.close(file)
        seal_file(held)
        held = _open_for_reading(held)
    os.set_inheritable(held, True)
    return f"/proc/self/fd/{held}"


def _open_for_reading(file: int) -> int:
    """Open the same file to read: the kernel starts no program that somebody has open to write."""
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)
