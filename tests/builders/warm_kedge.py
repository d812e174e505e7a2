# SPDX-License-Identifier: BSD-3-Clause
"""The command line in processes that need not start: `tests/programs/warm_kedge.py` has imported kedge already.

Each is a process as the one of a user: its own number, streams, environment, directory and user, and it ends as kedge
ends. What it does not prove is what a start imports, or how Python itself begins; tests of that start Python.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from tests import times_of_a_run
from tests.requirements import REPOSITORY

_PROGRAM = REPOSITORY / "tests/programs/warm_kedge.py"
_PATIENCE = 240.0
_servers: dict[int, socket.socket] = {}  # by the process that started it: a fork of it needs its own


def run_kedge(
    words: list[str],
    *,
    environment: Mapping[str, str],
    folder: Path | str,
    user: int | None = None,
    input: str | None = None,
    timeout: float = _PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run `kedge` with these words to the end, as `subprocess.run` would."""
    if "COVERAGE_PROCESS_START" in os.environ and user in (None, os.getuid()):
        argv = [sys.executable, "-m", "kedge", *words]  # each process notes its own lines
        options = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            argv, env=environment, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False, **options
        )
    asked = _find_server()
    request = {
        "words": words,
        "environment": dict(environment),
        "folder": str(folder),
        "user": os.getuid() if user is None else user,
        "umask": _read_umask(),
    }
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(open(_make_file(json.dumps(request)), "rb"))
        given = stack.enter_context(_feed(input) if input is not None else Path(os.devnull).open("rb"))
        output, for_output = os.pipe()
        errors, for_errors = os.pipe()
        answer, for_answer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(answer)
        with for_answer:
            files = array.array("i", [text.fileno(), given.fileno(), for_output, for_errors, for_answer.fileno()])
            asked.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        os.close(for_output)
        os.close(for_errors)
        process = int(json.loads(answer.recv(100)))
        try:
            said = _read_to_the_end((output, errors), answer, timeout)
        except subprocess.TimeoutExpired:
            os.kill(process, signal.SIGKILL)
            raise
        finally:
            os.close(output)
            os.close(errors)
        status, used = json.loads(answer.recv(100))
    times_of_a_run.add_cpu(used)
    return subprocess.CompletedProcess(["kedge", *words], status, *said)


def kedge(
    *words: str | Path,
    cache: Path,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    cwd: Path | str = ".",
) -> subprocess.CompletedProcess[str]:
    """As `kedge` of `tests/builders/images.py`: the command line with a store of its own."""
    variables = {**os.environ, "KEDGE_CACHEDIR": str(cache), **(environment or {})}
    done = run_kedge([*map(str, words)], environment=variables, folder=Path(cwd).absolute())
    if check:
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def _read_umask() -> int:
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _make_file(text: str) -> int:
    file = os.memfd_create("request")
    with open(file, "wb", closefd=False) as stream:
        stream.write(text.encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _feed(text: str) -> BinaryIO:
    """The end of a pipe to read the text from."""
    file, other = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(other, "wb") as stream:
            stream.write(text.encode())

    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(file, "rb")


def _read_to_the_end(files: tuple[int, int], answer: socket.socket, timeout: float) -> list[str]:
    """What comes out of both, until nobody can write to them any more."""
    end = time.monotonic() + timeout
    pieces: dict[int, list[bytes]] = {file: [] for file in files}
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(end - time.monotonic())
            if not ready:
                raise subprocess.TimeoutExpired("kedge", timeout)
            for key, _ in ready:
                if piece := os.read(key.fd, 1 << 16):
                    pieces[key.fd].append(piece)
                else:
                    selector.unregister(key.fd)
    answer.settimeout(max(end - time.monotonic(), 0.1))
    texts = [b"".join(pieces[file]).decode("utf-8", "surrogateescape") for file in files]
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _find_server() -> socket.socket:
    """The one of this process, which ends when nobody can ask it any more."""
    own = os.getpid()
    if own not in _servers:
        _servers.clear()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, str(_PROGRAM), str(theirs.fileno())]
            environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
            process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env=environment, cwd="/")
        _servers[own] = ours

        def end() -> None:
            if os.getpid() == own:
                ours.close()
                process.wait(timeout=60)

        atexit.register(end)
    return _servers[own]
