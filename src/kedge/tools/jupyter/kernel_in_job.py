# SPDX-License-Identifier: BSD-3-Clause
"""The login node's side of a kernel in a job: requests the job and stands where Jupyter expects the kernel.

Jupyter has chosen five ports of this host. They are answered here, and what comes is carried to the node through the
standard streams of srun, qrsh or the local queue. SIGINT is passed on to the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from kedge.errors import FileProblem, NotebookProblem
from kedge.system.process import PipedChild, start_piped
from kedge.tools.jupyter.kernel_on_node import CHANNELS
from kedge.tools.jupyter.relay import OPEN, READY, SIGNAL, START, Relay, RelayLine, open_relay

_GRACE = 4.0  # seconds that the job gets to end by itself
_MOMENT = 0.2


def read_connection(path: str) -> dict[str, object]:
    """What Jupyter wrote for the kernel."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise FileProblem(
            f"cannot read the connection file {path}: {problem}",
            context={"path": path},
            hint="Jupyter writes it and names it; start the kernel from Jupyter",
        ) from None
    ports = [f"{name}_port" for name in CHANNELS]
    if (
        not isinstance(found, dict)
        or not all(isinstance(found.get(name), int) for name in ports)
        or not isinstance(found.get("ip"), str)
        or found.get("transport", "tcp") != "tcp"
    ):
        raise NotebookProblem(
            f"{path} is not a connection file with TCP ports",
            hint="leave 'transport' of Jupyter's KernelManager at tcp for kernels in jobs",
        )
    return found


def run_in_job(
    argv: Sequence[str], connection: Mapping[str, object], environ: Mapping[str, str], note: Callable[[str], None]
) -> int:
    """Run the scheduler's command, which starts the node's side, until the kernel ends; returns its status."""
    return asyncio.run(_LoginSide(connection, note).run(argv, environ))


class _LoginSide:
    def __init__(self, connection: Mapping[str, object], note: Callable[[str], None]) -> None:
        self._connection = connection
        self._note = note
        self._numbers = itertools.count(1)
        self._waiting = asyncio.Event()  # set once the kernel listens
        self._servers: list[asyncio.Server] = []

    async def run(self, argv: Sequence[str], environ: Mapping[str, str]) -> int:
        child = start_piped(argv, environ)
        loop = asyncio.get_running_loop()
        relay = await open_relay(child.output, child.input)
        try:
            await self._listen(relay)
            await relay.send(START, 0, json.dumps(dict(self._connection)).encode())
            receiving = loop.create_task(relay.receive(self._handle))
            loop.add_signal_handler(signal.SIGINT, lambda: loop.create_task(relay.send(SIGNAL, signal.SIGINT)))
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, receiving.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await receiving
        finally:
            status = await self._end(relay, child)
        return status

    async def _listen(self, relay: Relay) -> None:
        for name in CHANNELS:
            host, port = str(self._connection["ip"]), int(str(self._connection[f"{name}_port"]))
            try:
                self._servers.append(await asyncio.start_server(self._make_opener(relay, name), host, port))
            except OSError as problem:
                raise NotebookProblem(
                    f"cannot listen on {host} port {port}: {os.strerror(problem.errno or 0)}",
                    hint="start the kernel again: Jupyter then chooses other ports",
                ) from problem

    def _make_opener(
        self, relay: Relay, channel: str
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._waiting.wait()
            number = next(self._numbers)
            await relay.send(OPEN, number, channel.encode())
            relay.adopt(number, reader, writer)

        return answer

    async def _handle(self, line: RelayLine) -> None:
        if line.verb == READY:
            self._waiting.set()
            self._note(f"The kernel runs on {line.payload.decode(errors='replace')}")

    async def _end(self, relay: Relay, child: PipedChild) -> int:
        """End what is left; the node's side ends its kernel when its input ends."""
        for server in self._servers:
            server.close()
        relay.close()
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    if number:
                        child.signal(number)
                    while child.poll() is None:
                        await asyncio.sleep(_MOMENT)
        return child.poll() or 0
