# SPDX-License-Identifier: BSD-3-Clause
"""Private services of a test: a directory others can reach, free ports, and programs that all end with the test."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.builders.removal import remove_beside
from tests.builders.waiting import PATIENCE, wait_until
from tests.requirements import SBIN, open_way, require_program

# Below the range from which kernels give ports to outgoing connections: nobody takes one between our look and its use.
_PORTS = range(20_000, 32_000)


class DaemonFailed(AssertionError):
    """A service of the test did not come up; the message has the end of its log."""


@contextlib.contextmanager
def private_folder(name: str) -> Iterator[Path]:
    """A directory that every user can enter. It is not pytest's: each start of pytest closes those to all others."""
    folder = Path(tempfile.mkdtemp(prefix=f"kedge-{name}-"))
    try:
        open_way(folder)
        yield folder
    finally:
        remove_beside(folder)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port), reuse_port=False):
            found.append(port)
    return found


class Daemons:
    """The programs of one service: children of ours, that the kernel ends too if we are killed.

    Of our own environment they have nothing: schedulers hand theirs on to jobs.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], *, patience: float = 10) -> None:
        self.folder = folder
        self._patience = patience  # seconds for a program to end by itself
        self.environment = {"PATH": f"/usr/local/bin:/usr/bin:/bin:{SBIN}", "LANG": "C.UTF-8", **environment}
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, argv: Iterable[str], *, prefix: Iterable[str] = ()) -> subprocess.Popen[bytes]:
        """Start a program that stays in the foreground; what it says goes to NAME.out."""
        words = [*prefix, require_program("setpriv"), "--pdeathsig", "KILL", *argv]
        with (self.folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder
            )
        self._running.append((name, process))
        return process

    def wait_until(self, what: str, is_so: Callable[[], object], *, timeout: float = PATIENCE) -> None:
        """Wait for something that these programs do; fails at once, with its log, when one of them is gone."""

        def is_so_or_never() -> object:
            gone = [name for name, process in self._running if process.poll() is not None]
            if gone:
                raise DaemonFailed(f"{gone[0]} ended while we waited for: {what}")
            return is_so()

        try:
            wait_until(what, is_so_or_never, timeout=timeout)
        except AssertionError as problem:
            raise DaemonFailed(f"{problem}\n{self.read_logs()}") from None

    def read_logs(self, name: str = "") -> str:
        """The ends of what the programs said and logged."""
        logs = [*self.folder.glob(f"{name}*.out"), *self.folder.glob(f"log/{name}*")]
        ends = [f"--- {log.name}\n" + log.read_text(errors="replace")[-3000:] for log in sorted(logs) if log.is_file()]
        return "\n".join(ends)

    def end(self, name: str) -> None:
        """End the program of this name and wait until it is gone."""
        for each in [each for each in self._running if each[0] == name]:
            _end_child(each[1], self._patience)
            self._running.remove(each)

    def end_all(self) -> None:
        """End all of them, the last one first, and whatever they started that still runs."""
        while self._running:
            _end_child(self._running.pop()[1], self._patience)
        endprocesses_of(self.folder)


def _end_child(process: subprocess.Popen[bytes], patience: float) -> None:
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def endprocesses_of(folder: Path) -> None:
    """End every process whose environment names the directory: only programs that were started for it have its name."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = processes_of(folder)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + 2
        while found and processes_of(folder) and time.monotonic() < end:
            time.sleep(0.05)


def processes_of(folder: Path) -> list[int]:
    """The processes whose environment names the directory."""
    mark, found = os.fsencode(folder), []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in place.read_bytes() and int(place.parent.name) != os.getpid():
                found.append(int(place.parent.name))
    return found
