# SPDX-License-Identifier: BSD-3-Clause
"""SIGTERM and SIGHUP as exceptions, so that temporary files are removed on the way out."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """The process was asked to end; a BaseException, because no handler of ordinary errors may keep it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def raised_signals() -> Iterator[None]:
    """Raise Terminated in the main thread when SIGTERM or SIGHUP comes; restore the old handlers afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup asked for it to be ignored
            signal.signal(number, _raise_terminated)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    del frame
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a shell that goes away sends SIGHUP twice; the clean-up must end
    raise Terminated(number)
