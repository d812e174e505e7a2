# SPDX-License-Identifier: BSD-3-Clause
"""The compute node's side of a kernel in a job: starts it, and carries its connections to the login node.

The kernel listens on sockets in a directory that only its user can enter. It ends when the other side does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kedge.container.processes.rank_sharing import find_private_directory
from kedge.errors import NotebookProblem
from kedge.system.process import PipedChild, start_piped
from kedge.system.start_kedge import own_command
from kedge.tools.jupyter.kernel_specs import KernelCommand, drop_parent
from kedge.tools.jupyter.relay import OPEN, READY, SIGNAL, START, Relay, RelayLine, open_relay

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")  # as connection files name them, with _port behind
_MOMENT = 0.05  # seconds between two looks
_GRACE = 5.0  # seconds that the kernel gets to end by itself


def serve_kernel(command: KernelCommand, environ: Mapping[str, str]) -> int:
    """Run a kernel whose connection file comes on standard input; returns its status."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-", dir=find_private_directory()))
    try:
        return asyncio.run(_NodeSide(command, environ, folder).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def localize(connection: Mapping[str, object], folder: Path) -> dict[str, object]:
    """The connection with sockets in a directory instead of ports, which others may have here."""
    numbers: dict[str, object] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
    return {**connection, **numbers, "transport": "ipc", "ip": str(folder / "s")}


def socket_of(folder: Path, channel: str) -> Path:
    """Where the kernel listens for a channel."""
    return folder / f"s-{CHANNELS.index(channel) + 1}"


class _NodeSide:
    def __init__(self, command: KernelCommand, environ: Mapping[str, str], folder: Path) -> None:
        self._command = command
        self._environ = drop_parent(environ)
        self._folder = folder
        self._relay: Relay | None = None
        self._kernel: PipedChild | None = None
        self._ready: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # interrupts come as lines
        self._relay = await open_relay(sys.stdin.buffer, sys.stdout.buffer)
        listening = loop.create_task(self._relay.receive(self._handle))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, listening.cancel)
        while not listening.done() and (self._kernel is None or self._kernel.poll() is None):
            await asyncio.sleep(_MOMENT)
        if self._kernel is None:
            raise NotebookProblem(
                "the login node's side ended before the kernel started", hint="look into Jupyter's log"
            )
        return await self._end(self._kernel)

    async def _handle(self, line: RelayLine) -> None:
        if line.verb == START and self._kernel is None:
            self._start(json.loads(line.payload))
        elif line.verb == SIGNAL and self._kernel is not None:
            self._kernel.signal(line.number)
        elif line.verb == OPEN and self._relay is not None:
            await self._open(self._relay, line.number, line.payload.decode())

    def _start(self, connection: Mapping[str, object]) -> None:
        file = self._folder / "connection.json"
        file.write_text(json.dumps(localize(connection, self._folder)))
        argv = own_command(*self._command.exec_words(str(file)))
        self._kernel = start_piped(argv, self._environ, has_pipes=False)
        self._ready = asyncio.get_running_loop().create_task(self._tell_ready())

    async def _tell_ready(self) -> None:
        while not all(socket_of(self._folder, name).exists() for name in CHANNELS):
            await asyncio.sleep(_MOMENT)
        if self._relay is not None:
            await self._relay.send(READY, 0, os.uname().nodename.encode())

    async def _open(self, relay: Relay, number: int, channel: str) -> None:
        try:
            relay.adopt(number, *await asyncio.open_unix_connection(str(socket_of(self._folder, channel))))
        except (OSError, ValueError):
            await relay.refuse(number)

    async def _end(self, kernel: PipedChild) -> int:
        """The kernel's status; it is ended where it still runs."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    while kernel.poll() is None:
                        kernel.signal(number)
                        await asyncio.sleep(4 * _MOMENT)
        return kernel.poll() or 0
