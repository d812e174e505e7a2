# SPDX-License-Identifier: BSD-3-Clause
"""Why a mount failed on a host without /proc: places in a container are named by /proc/self/fd, and none is there.

The kernel says "No such file or directory" then, which would be taken for a directory that the image lacks.
"""

from __future__ import annotations

import os

from kedge.errors import MountFailed

_FILES = "/proc/self/fd"


def explain_missing_proc(files: str = _FILES) -> MountFailed | None:
    """The error where this host does not show a process its open files; None where it does."""
    try:
        os.listdir(files)
    except OSError as problem:
        is_there = os.path.lexists(os.path.dirname(files))
        return MountFailed(
            f"cannot create a container on this host: kedge cannot read {_FILES} ({problem.strerror})",
            context={"/proc": "mounted, but restricted" if is_there else "not mounted"},
            hint="start the outer container, or the service that runs kedge, with an unrestricted /proc"
            if is_there
            else "mount it first: mount -t proc proc /proc",
        )
    return None
