# SPDX-License-Identifier: BSD-3-Clause
"""Connections carried through one pair of byte streams.

Jupyter talks to a kernel over five connections. Between a login node and a compute node they go through the standard
streams of the scheduler's own command, so no port is open on the network.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import IO

from kedge.base.frozen import frozen

# The lines that carry a kernel's connections through the standard streams of srun or qrsh.
#
# Lines of text arrive whatever is in between: srun passes on whole lines, a site's login files print their own.

MARK = b"kedge-relay "
PIECE = 48 * 1024  # bytes of a connection in one line
LONGEST = 1 << 20  # bytes of a line

START = "start"  # to the node: the connection file
READY = "ready"  # from the node: the kernel listens
OPEN = "open"  # to the node: a connection to a channel, whose name is the payload
DATA = "data"
CLOSE = "close"
SIGNAL = "signal"  # to the node: its number
_VERBS = (START, READY, OPEN, DATA, CLOSE, SIGNAL)


@frozen
class RelayLine:
    """One line: what, of which connection, with which bytes."""

    verb: str
    number: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """The line with its end."""
        return b"%s%s %d %s\n" % (MARK, self.verb.encode(), self.number, base64.b64encode(self.payload))


def read_line(line: bytes) -> RelayLine | None:
    """A line of the other side; None for what others print."""
    words = line.partition(MARK)[2].rstrip(b"\r\n").split(b" ")
    if MARK not in line or len(words) != 3 or words[0].decode(errors="replace") not in _VERBS or not words[1].isdigit():
        return None
    try:
        return RelayLine(words[0].decode(), int(words[1]), base64.b64decode(words[2], validate=True))
    except binascii.Error:
        return None


Handler = Callable[[RelayLine], Awaitable[None]]


class Relay:
    """One end: local connections have numbers, and their bytes go to the other end as lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connections: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, verb: str, number: int = 0, payload: bytes = b"") -> None:
        """Send one line; waits while the other end does not read."""
        with contextlib.suppress(OSError):  # the end of the other side is seen by `receive`
            self._writer.write(RelayLine(verb, number, payload).encode())
            await self._writer.drain()

    def close(self) -> None:
        """Close all connections, and tell the other end that this one is done."""
        for number in list(self._connections):
            self._drop(number)
        self._writer.close()

    def adopt(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection under this number until either end closes it."""
        self._connections[number] = writer
        task = asyncio.get_running_loop().create_task(self._carry(number, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def refuse(self, number: int) -> None:
        """Tell the other end that a connection could not be made."""
        await self.send(CLOSE, number)

    async def _carry(self, number: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                await self.send(DATA, number, piece)
        if self._drop(number):
            await self.send(CLOSE, number)

    def _drop(self, number: int) -> bool:
        """Close a connection; whether it was open."""
        writer = self._connections.pop(number, None)
        if writer is not None:
            writer.close()
        return writer is not None

    async def receive(self, handle: Handler) -> None:
        """Take lines until the other end closes; `handle` gets what is not about an open connection."""
        while line := await self._next_line():
            message = read_line(line)
            if message is None:
                sys.stderr.buffer.write(line)  # of the site or the scheduler: for Jupyter's log
                sys.stderr.flush()
            elif message.verb == CLOSE:
                self._drop(message.number)
            elif message.verb == DATA:
                await self._deliver(message)
            else:
                await handle(message)

    async def _next_line(self) -> bytes:
        """The next line, or the beginning of one that is longer than ours are; empty at the end."""
        try:
            return await self._reader.readuntil()
        except asyncio.IncompleteReadError as problem:
            return problem.partial
        except asyncio.LimitOverrunError as problem:
            return await self._reader.read(max(problem.consumed, 1))
        except OSError:
            return b""

    async def _deliver(self, message: RelayLine) -> None:
        writer = self._connections.get(message.number)
        if writer is None:  # closed here meanwhile
            return
        try:
            writer.write(message.payload)
            await writer.drain()
        except OSError:
            if self._drop(message.number):
                await self.send(CLOSE, message.number)


async def open_relay(source: IO[bytes], target: IO[bytes]) -> Relay:
    """A relay over two pipes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, target)
    return Relay(reader, asyncio.StreamWriter(transport, protocol, None, loop))
