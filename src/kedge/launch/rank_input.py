# SPDX-License-Identifier: BSD-3-Clause
"""Standard input of a launch that kedge starts itself: rank 0 reads it, as under mpirun; the other ranks read nothing.

The pipe to a node must stay open while its ranks run, as the node ends them when it is closed. So the input goes
through it in pieces that say their length, and an empty one says that it has ended. The next piece is sent when rank 0
has taken the last: a rank that reads nothing does not keep the node from noticing that the pipe was closed. The very
first piece is the launch's token, for the node itself.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable

from kedge.system.child_group import ChildGroup

TAKEN = "input"  # what the node says to the launch when the next piece may come
_PIECE = 1 << 15
_READ = 1 << 16
_HEAD = 4  # bytes of the length, the highest first


def make_piece(data: bytes) -> bytes:
    """The data with its length before it."""
    return len(data).to_bytes(_HEAD, "big") + data


def read_first_piece(file: int) -> bytes:
    """On the node, before all else; empty where the launch is gone."""
    return _read_all(file, int.from_bytes(_read_all(file, _HEAD), "big"))


def _read_all(file: int, size: int) -> bytes:
    """Exactly so many bytes; empty where the file ends before, or more are wanted than a piece has."""
    data = b""
    while len(data) < size <= _PIECE:
        more = os.read(file, size - len(data))
        if not more:
            return b""
        data += more
    return data


class _Outlet:
    """Writes into a pipe what it takes at once, and the rest when it can; calls `when_empty` when all is written."""

    def __init__(self, group: ChildGroup, file: int, when_empty: Callable[[], None]) -> None:
        os.set_blocking(file, False)
        self._group = group
        self._file = file
        self._when_empty = when_empty
        self._left = b""
        self.is_open = True

    def put(self, data: bytes) -> None:
        self._left += data
        self._go_on()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._group.forget_file(self._file)
            os.close(self._file)

    def _go_on(self) -> None:
        try:
            while self._left and self.is_open:
                self._left = self._left[os.write(self._file, self._left) :]
        except BlockingIOError:
            self._group.watch_file(self._file, select.POLLOUT, self._go_on)
            return
        except OSError:  # nobody reads any more, and nobody is waiting for it
            self.close()
        if self.is_open:
            self._group.forget_file(self._file)
            self._when_empty()


class InputSender:
    """The launch's side: hands `source` on to the first node; without one, rank 0 reads an input that has ended."""

    def __init__(self, group: ChildGroup, pipe: int, source: int | None) -> None:
        self._group = group
        self._source = source
        self._outlet = _Outlet(group, pipe, lambda: None)
        if source is None:
            self._outlet.put(bytes(_HEAD))
        else:
            group.watch_file(source, select.POLLIN, self._send)

    def go_on(self) -> None:
        """The last piece was taken."""
        if self._source is not None:
            self._group.watch_file(self._source, select.POLLIN, self._send)

    def close(self) -> None:
        """Let go of the node."""
        if self._source is not None:
            self._group.forget_file(self._source)
            self._source = None
        self._outlet.close()

    def _send(self) -> None:
        assert self._source is not None
        self._group.forget_file(self._source)
        data = b""
        with contextlib.suppress(OSError):  # a directory, or a terminal that is gone: as an end
            data = os.read(self._source, _PIECE)
        if not data:
            self._source = None
        self._outlet.put(make_piece(data))


class InputReceiver:
    """The node's side: reads its own standard input, and writes the pieces for rank 0 if that is one of its ranks."""

    def __init__(self, group: ChildGroup, rank_pipe: int | None, tell_taken: Callable[[], None]) -> None:
        self.is_attended = True  # the launch holds the pipe
        self._group = group
        self._outlet = None if rank_pipe is None else _Outlet(group, rank_pipe, tell_taken)
        self._read = b""
        group.watch_file(0, select.POLLIN, self._take)

    def close(self) -> None:
        """Rank 0 reads no more."""
        if self._outlet is not None:
            self._outlet.close()

    def _take(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(0, _READ)
        if not data:
            self.is_attended = False
            self._group.forget_file(0)
            return
        self._read += data
        while len(self._read) >= _HEAD:
            end = _HEAD + int.from_bytes(self._read[:_HEAD], "big")
            if len(self._read) < end:
                return
            piece, self._read = self._read[_HEAD:end], self._read[end:]
            if not piece:
                self.close()
            elif self._outlet is not None and self._outlet.is_open:
                self._outlet.put(piece)
