# SPDX-License-Identifier: BSD-3-Clause
"""Calls on threads with one deadline for all, for processes that end soon.

A thread that is late is abandoned: a call that blocks in the kernel cannot be cancelled.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from kedge.errors import KedgeError

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
