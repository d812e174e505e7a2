# SPDX-License-Identifier: BSD-3-Clause
"""Pieces of several streams put together to lines. A program may never end one: long lines come in parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Stream = TypeVar("_Stream", bound=Hashable)


class LineBuffer(Generic[_Stream]):
    """`take` gets each line with its newline; without one it is a part of a line longer than `longest`, or the rest."""

    def __init__(self, take: Callable[[_Stream, bytes], None], longest: int) -> None:
        self._take = take
        self._longest = longest
        self._rest: dict[_Stream, bytearray] = {}

    def hear(self, stream: _Stream, data: bytes) -> None:
        """The next piece of a stream."""
        rest = self._rest.setdefault(stream, bytearray())
        *lines, last = data.split(b"\n")
        for line in lines:
            rest += line + b"\n"
            self._hand_over(stream, rest)
        rest += last
        if len(rest) > self._longest:
            self._hand_over(stream, rest)

    def flush(self) -> None:
        """No more comes: lines without an end count, too."""
        for stream, rest in self._rest.items():
            if rest:
                self._hand_over(stream, rest)

    def _hand_over(self, stream: _Stream, rest: bytearray) -> None:
        line = bytes(rest)
        rest.clear()  # first: who cannot take it raises, and must not get it again
        self._take(stream, line)
