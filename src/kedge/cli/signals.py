# SPDX-License-Identifier: BSD-3-Clause
"""SIGINT, SIGTERM and SIGHUP as exceptions, so that temporary files are removed on the way out."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` makes enumerations of all of it, at every start

_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], None]
_MOMENT = 0.01  # seconds
_ONE_INTERRUPT = 1.0  # seconds; a terminal sends SIGINT to us and to our parent, which passes it on: that is one


class Terminated(BaseException):
    """The process was asked to end; a BaseException, because no handler of ordinary errors may keep it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def raised_signals() -> Iterator[None]:
    """Raise in the main thread: KeyboardInterrupt when SIGINT comes, Terminated when SIGTERM or SIGHUP does.

    The old handlers are restored afterwards; what was ignored (nohup, a script's background) stays so.
    """
    threads = sys.modules.get("threading")  # without it there is no other thread
    if threads is not None and threads.current_thread() is not threads.main_thread():
        yield
        return
    raisers: dict[int, _Handler] = {
        **dict.fromkeys(_SIGNALS, _raise_terminated),
        _signal.SIGINT: _InterruptRaiser(),
    }
    before = {number: _signal.getsignal(number) for number in (*raisers, _signal.SIGALRM)}
    hook = sys.unraisablehook
    try:
        sys.unraisablehook = _raise_again
        for number, raiser in raisers.items():
            if before[number] != _signal.SIG_IGN:
                _signal.signal(number, raiser)
        yield
    finally:
        sys.unraisablehook = hook
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            _signal.signal(number, handler if handler is not None else _signal.SIG_DFL)


def _raise_again(missed: sys.UnraisableHookArgs) -> None:
    """What came while the interpreter ran a callback of its own, and was swallowed there, is raised a moment later."""
    swallowed = missed.exc_value
    if not isinstance(swallowed, KeyboardInterrupt | Terminated):
        sys.__unraisablehook__(missed)
        return

    def raise_late(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise swallowed

    _signal.signal(_signal.SIGALRM, raise_late)
    _signal.setitimer(_signal.ITIMER_REAL, _MOMENT)


class _InterruptRaiser:
    """Raises KeyboardInterrupt for the first of several SIGINTs that come together, so that the clean-up can end."""

    def __init__(self) -> None:
        self._last = -_ONE_INTERRUPT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if now - self._last >= _ONE_INTERRUPT:
            self._last = now
            raise KeyboardInterrupt


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    del frame
    for ending in _SIGNALS:
        _signal.signal(ending, _signal.SIG_IGN)  # a shell that goes away sends SIGHUP twice; the clean-up must end
    raise Terminated(number)
