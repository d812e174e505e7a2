# SPDX-License-Identifier: BSD-3-Clause
"""Starts threads where none may be had, and where a signal's handler may raise meanwhile."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kedge.errors import KedgeError


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


# Calls on threads with one deadline for all, for processes that end soon.
#
# A thread that is late is abandoned: a call that blocks in the kernel cannot be cancelled.

T = TypeVar("T")


def answer_within(seconds: float, questions: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """The answers by name; those that were late, or ended in an error of kedge or of the system, are not among them."""
    answers: dict[str, T] = {}

    def ask(name: str, question: Callable[[], T]) -> None:
        with contextlib.suppress(KedgeError, OSError):
            answers[name] = question()

    end = time.monotonic() + seconds
    threads = [threading.Thread(target=ask, args=question, daemon=True) for question in questions.items()]
    with contextlib.suppress(RuntimeError):  # no more threads to be had: the rest is not answered
        for thread in threads:
            thread.start()
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, end - time.monotonic()))
    return dict(answers)
