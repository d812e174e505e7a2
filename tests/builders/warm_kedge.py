# SPDX-License-Identifier: BSD-3-Clause
"""The command line in processes that need not start: `tests/programs/warm_kedge.py` has imported kedge already.

Each is a process as the one of a user: its own number, streams, environment, directory and user, and it ends as kedge
ends. What it does not prove is what a start imports, or how Python itself begins; tests of that start Python.
"""

from __future__ import annotations

import array
import atexit
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests import times_of_a_run
from tests.requirements import REPOSITORY

_servers: dict[int, socket.socket] = {}  # by the process that started it: a fork of it needs its own


def run_kedge(
    words: list[str],
    *,
    environment: Mapping[str, str],
    folder: Path | str,
    user: int | None = None,
    input: str | None = None,
    timeout: float = 240,
    umask: int | None = None,
    program: Path | str = "",
) -> subprocess.CompletedProcess[str]:
    """Run `kedge`, or a program that imports it, with these words to the end, as `subprocess.run` would."""
    end = time.monotonic() + timeout
    os.umask(own := os.umask(0o022))
    who = os.getuid() if user is None else user
    request = json.dumps([words, dict(environment), str(folder), who, own if umask is None else umask, str(program)])
    asked = os.memfd_create("request")
    os.write(asked, request.encode())
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    answer, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    files = array.array("i", [asked, *theirs, told.fileno()])
    _find_server().sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    told.close()
    for each in (asked, *theirs):
        os.close(each)
    with answer, concurrent.futures.ThreadPoolExecutor() as pool:
        process = int(json.loads(answer.recv(100)))
        pool.submit(_write, pipes[0][1], input or "")
        said = [pool.submit(_read, pipe[0]) for pipe in pipes[1:]]
        try:
            output, errors = (each.result(end - time.monotonic()) for each in said)
        except concurrent.futures.TimeoutError:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["kedge", *words], timeout) from None
        status, used = json.loads(answer.recv(100))
    times_of_a_run.add_cpu(used)
    return subprocess.CompletedProcess(["kedge", *words], status, output, errors)


def kedge(
    *words: str | Path,
    cache: Path,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    umask: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `kedge` of `tests/builders/images.py`: the command line with a store of its own."""
    variables = {**os.environ, "KEDGE_CACHEDIR": str(cache), **(environment or {})}
    done = run_kedge([*map(str, words)], environment=variables, folder=cwd or Path.cwd(), umask=umask)
    assert not check or done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def _write(file: int, text: str) -> None:
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)


def _read(file: int) -> str:
    with os.fdopen(file, encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def _find_server() -> socket.socket:
    """The one of this process, which ends when nobody can ask it any more."""
    own = os.getpid()
    if own not in _servers:
        _servers.clear()
        _servers[own], theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, str(REPOSITORY / "tests/programs/warm_kedge.py"), str(theirs.fileno())]
            process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], cwd="/")
        atexit.register(_end_server, own, process)
    return _servers[own]


def _end_server(own: int, process: subprocess.Popen[bytes]) -> None:
    if os.getpid() == own:
        _servers.pop(own).close()
        process.wait(timeout=60)
