# SPDX-License-Identifier: BSD-3-Clause
"""Signals that come exactly where Python next looks for one: at each such place of the main thread, one by one.

A handler of Python runs between two instructions: after a call, at the start of a function, at the end of a loop. What
goes wrong at one of these in a million is found by going through all of them, and not by waiting for it.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import operator
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

_LOOKING = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "SEND")  # instructions after which it looks
_OPCODES = frozenset(dis.opmap[name] for name in _LOOKING if name in dis.opmap)
_BEGINNING = -1


class Point(NamedTuple):
    """An instruction of a function; -1 is its beginning."""

    file: str
    function: str
    instruction: int


class _Watcher:
    """Follows the main thread through the files whose paths have one of `places` in them."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places

    def __enter__(self) -> _Watcher:
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)

    def _enter_function(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        path = frame.f_code.co_filename
        if path == __file__ or not any(place in path for place in self._places):
            return None
        frame.f_trace = self._step  # Python 3.13 tells of instructions only if this is set before
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.meet(Point(path, frame.f_code.co_qualname, _BEGINNING))
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        del argument
        code = frame.f_code
        if event == "opcode" and code.co_code[frame.f_lasti] in _OPCODES:
            self.meet(Point(code.co_filename, code.co_qualname, frame.f_lasti))
        return self._step

    def meet(self, point: Point) -> None:
        raise NotImplementedError


class PointList(_Watcher):
    """Notes which points are met, and how often."""

    def __init__(self, places: Sequence[str]) -> None:
        super().__init__(places)
        self.met: Counter[Point] = Counter()

    def meet(self, point: Point) -> None:
        self.met[point] += 1


class _Trip:
    """`now` lets a signal come, without being itself a place at which Python looks for one."""

    def __init__(self, number: int) -> None:
        self.call = functools.partial(ctypes.pythonapi.PyErr_SetInterruptEx, number)

    now = property(operator.methodcaller("call"))


class SignalAt(_Watcher):
    """A signal when `point` is met for the `count`-th time; `came` says whether it was."""

    def __init__(self, point: Point, number: int, count: int = 1, told: int = -1) -> None:
        super().__init__([point.file])
        self._point = point
        self._left = count
        self._told = told  # an open file that gets a byte when the signal comes
        self._trip = _Trip(number)
        self.came = False

    def meet(self, point: Point) -> None:
        if point != self._point or self.came:
            return
        self._left -= 1
        if not self._left:
            self.came = True
            sys.settrace(None)
            if self._told >= 0:
                os.write(self._told, b"!")
            self._trip.now  # noqa: B018 - it acts by being read


def list_points(work: Callable[[], object], places: Sequence[str]) -> list[Point]:
    """The points that `work` meets in these files."""
    with PointList(places) as watcher:
        work()
    return sorted(watcher.met)
