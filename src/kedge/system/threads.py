# SPDX-License-Identifier: BSD-3-Clause
"""Starts threads where none may be had, and where a signal's handler may raise meanwhile."""

from __future__ import annotations

import sys
import threading


def start_thread(thread: threading.Thread) -> bool:
    """Start it; False where no more threads are allowed (RLIMIT_NPROC, a pids cgroup).

    What a handler raises while `start` waits for the thread is raised as it is: Python may replace it by an error of
    the lock it waited with.
    """
    handled = sys.exception()  # what the caller may be busy with
    try:
        thread.start()
    except RuntimeError as problem:
        if problem.__context__ is not None and problem.__context__ is not handled:
            raise problem.__context__ from None
        return False
    return True
