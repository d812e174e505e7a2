# SPDX-License-Identifier: BSD-3-Clause
"""SIGINT, SIGTERM and SIGHUP as exceptions, so that temporary files are removed on the way out."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from types import FrameType

from kedge.system import undivided

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from weakref import ref
else:
    import _signal  # `signal` makes enumerations of all of it, at every start
    from _weakref import ref

_SIGNALS = (_signal.SIGTERM, _signal.SIGHUP)
_MOMENT = 0.01  # seconds
_ONE_INTERRUPT = 1.0  # seconds; a terminal sends SIGINT to us and to our parent, which passes it on: that is one
_LEAVING = 3.0  # seconds that the end of a `with` may take before it is interrupted, too
# An exception in the middle of these leaves a lock taken for ever, or a `with` entered that nobody leaves.
_UNSAFE = ("threading", "contextlib", "subprocess")


class Terminated(BaseException):
    """The process was asked to end; a BaseException, because no handler of ordinary errors may keep it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: a class of our own, because of Python's own exceptions nobody can tell when they are gone."""


_raisers: list[_Raiser] = []  # of the `raised_signals` that we are in, the innermost last


@contextlib.contextmanager
def raised_signals() -> Iterator[None]:
    """Raise in the main thread: KeyboardInterrupt when SIGINT comes, Terminated when SIGTERM or SIGHUP does.

    The old handlers are restored afterwards; what was ignored (nohup, a script's background) stays so.
    """
    threads = sys.modules.get("threading")  # without it there is no other thread
    if threads is not None and threads.current_thread() is not threads.main_thread():
        yield
        return
    raiser = _Raiser()
    numbers = (*_SIGNALS, _signal.SIGINT, _signal.SIGALRM)
    before = {number: _signal.getsignal(number) for number in numbers}
    hook = sys.unraisablehook
    try:
        _raisers.append(raiser)
        undivided.steps.clear()  # where handlers of others raised, as in a notebook, one may have been left
        sys.unraisablehook = _hide_signals
        for number in numbers:
            if before[number] != _signal.SIG_IGN or number == _signal.SIGALRM:
                _signal.signal(number, raiser.hear)
        yield
    finally:
        raiser.is_over = True
        undivided.is_waiting = False
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        _raisers.remove(raiser)
        for number, handler in before.items():
            _signal.signal(number, handler if handler is not None else _signal.SIG_DFL)


def stop_raising() -> None:
    """Stop raising: what a signal raised has arrived where it is reported."""
    for raiser in _raisers:
        raiser.is_over = True


def _hide_signals(missed: sys.UnraisableHookArgs) -> None:
    """Hide exceptions that a signal raised in a callback of the interpreter: they end there, and are raised again."""
    if not isinstance(missed.exc_value, Interrupted | Terminated):
        sys.__unraisablehook__(missed)


class _Raiser:
    """Raises what a signal means: where that leaves nothing halfway, and again if somebody swallowed it.

    Callbacks of the interpreter and finalizers of files do that, without a trace. The exception is gone then, while the
    command goes on; one that is on its way, or follows from it, is kept by what handles it.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._interrupted = -_ONE_INTERRUPT
        self._heard = 0.0  # when the last one came
        self._problem: BaseException | None = None  # to be raised
        self._place: tuple[FrameType | None, int] = (None, 0)  # where it was to be raised last
        self._raised: list[ref[BaseException]] = []

    def hear(self, number: int, frame: FrameType | None) -> None:
        """The handler of all of them, and of the timer by which it is tried again."""
        if number == _signal.SIGINT:
            now = time.monotonic()
            if now - self._interrupted < _ONE_INTERRUPT:
                return  # so that the clean-up can end
            self._interrupted = now
            self._problem = Interrupted()
        elif number in _SIGNALS:
            for ending in _SIGNALS:
                _signal.signal(ending, _signal.SIG_IGN)  # a shell that goes away sends SIGHUP twice, as above
            self._problem = Terminated(number)
        if number != _signal.SIGALRM:
            self._heard = time.monotonic()
        if self._problem is None or self.is_over:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
            return
        place = (frame, frame.f_lasti if frame is not None else 0)
        if undivided.steps or self._is_halfway(frame, is_waiting=place == self._place):  # twice in one place
            self._place = place
            self._try_later()
            return
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        undivided.is_waiting = False
        problem, self._problem, self._place = self._problem, None, (None, 0)
        again = type(problem)(*problem.args)
        self._raised.append(ref(problem, lambda _: self._raise_again(again)))
        try:
            raise problem
        finally:
            del problem  # else this frame, which belongs to its traceback, would keep it

    def _is_halfway(self, frame: FrameType | None, *, is_waiting: bool) -> bool:
        """Whether what is raised here leaves something taken, or keeps it from being given back."""
        if _is_unsafe(frame):
            return not is_waiting
        return time.monotonic() - self._heard < _LEAVING and _is_leaving(frame)

    def _raise_again(self, problem: BaseException) -> None:
        if not self.is_over:
            self._problem = problem
            self._try_later()

    def _try_later(self) -> None:
        undivided.is_waiting = True
        _signal.setitimer(_signal.ITIMER_REAL, _MOMENT, _MOMENT)


def _is_unsafe(frame: FrameType | None) -> bool:
    return frame is not None and (frame.f_globals.get("__name__") in _UNSAFE or frame.f_code.co_name == "__enter__")


def _is_leaving(frame: FrameType | None) -> bool:
    """Whether the end of a `with` is at work, which frees or removes something, and is not called again."""
    while frame is not None and frame.f_code.co_name != "__exit__":
        frame = frame.f_back
    return frame is not None
