# SPDX-License-Identifier: BSD-3-Clause
"""The command line at a third of its cost: each command is a child of a process that has loaded kedge's modules.

It has a process, an environment and streams of its own, as a user's has. What Python or kedge settle while they start
(PYTHON variables, locales, limits, closed streams, signals) is no subject for it: such tests start `python -m kedge`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import times_of_a_run
from tests.requirements import REPOSITORY

_PROGRAM = REPOSITORY / "tests/programs/kedge_loaded.py"
_TIMEOUT = 240
_servers: dict[int, str] = {}  # the address, by the process that started it: a fork of one starts another


def kedge(
    *words: str | Path,
    cache: Path,
    check: bool = True,
    cwd: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    umask: int = 0o022,
) -> subprocess.CompletedProcess[str]:
    """As `tests.builders.images.kedge`."""
    assert not any(name.startswith("PYTHON") for name in environment or ()), "Python reads them when it starts"
    variables = {**os.environ, "KEDGE_CACHEDIR": str(cache), **(environment or {})}
    done = run_loaded(list(map(str, words)), variables, cwd=cwd, umask=umask)
    if check:
        assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_loaded(
    words: list[str],
    variables: Mapping[str, str],
    *,
    stdin: str = "",
    cwd: Path | str | None = None,
    umask: int = 0o022,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in exactly this environment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, _streams(stdin) as streams:
        connection.settimeout(_TIMEOUT)
        connection.connect(_servers.get(os.getpid()) or _start())
        request = json.dumps([words, dict(variables), str(cwd or Path.cwd()), umask])
        socket.send_fds(connection, [request.encode()], streams)
        process = int(connection.recv(100))
        try:
            status, used = json.loads(connection.recv(100))
        except TimeoutError as late:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, _TIMEOUT) from late
        texts = [os.pread(each, os.fstat(each).st_size, 0).decode() for each in streams[1:]]
    times_of_a_run.add_cpu(used)
    return subprocess.CompletedProcess(["kedge", *words], status, *texts)


@contextlib.contextmanager
def _streams(stdin: str) -> Iterator[list[int]]:
    """Descriptors of files for input, output and errors."""
    opened = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(opened[0], stdin.encode())
        os.lseek(opened[0], 0, os.SEEK_SET)
        yield opened
    finally:
        for each in opened:
            os.close(each)


def _start() -> str:
    """A process that serves until this one ends."""
    address = f"\0kedge-tests-{uuid.uuid4()}"  # process numbers are not unique where namespaces share a network
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(100)
        argv = [sys.executable, str(_PROGRAM), str(listener.fileno())]
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    _servers[os.getpid()] = address
    atexit.register(_end, server, os.getpid())
    return address


def _end(server: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        assert server.stdin
        server.stdin.close()
        server.wait()
