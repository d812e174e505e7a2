# SPDX-License-Identifier: BSD-3-Clause
"""A Python that has imported kedge, and becomes a kedge process each time it is asked: by fork, not by a start.

Or one of another program that imports kedge. `tests/builders/warm_kedge.py` starts it and asks. A request comes with
five files: what it is as JSON, the three standard streams, and a socket that gets the process's number at once, and its
status and CPU seconds at its end.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import time

import kedge
from kedge.cli.entry import main

_DUMPABLE = 4  # PR_SET_DUMPABLE
_OTHERS = ("rich.console", "rich.markdown", "rich.progress", "rich.table", "subprocess", "urllib3", "zstandard")


def load_all() -> None:
    """Import what any verb imports."""
    found = [each.name for each in pkgutil.walk_packages(kedge.__path__, "kedge.")]
    for name in (*found, *_OTHERS):
        if not name.endswith(("__main__", ".runner")):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(asked: socket.socket) -> bool:
    """Answer requests until nobody can ask any more; true in a child, which is what was asked for."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by the file that tells of its end
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file != asked.fileno():
                poll.unregister(file)
                os.close(file)
                child, answer = children.pop(file)
                _, status, used = os.wait4(child, 0)
                with contextlib.suppress(OSError), answer:
                    answer.send(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]).encode())
                continue
            _, packed, _, _ = asked.recvmsg(1, socket.CMSG_SPACE(20))
            if not packed:
                return False
            request, *streams, told = array.array("i", packed[0][2])
            child = os.fork()
            if not child:
                become(json.loads(os.pread(request, os.fstat(request).st_size, 0)), streams)
                return True
            answer = socket.socket(fileno=told)
            answer.send(json.dumps(child).encode())
            for each in (request, *streams):
                os.close(each)
            children[ended := os.pidfd_open(child)] = (child, answer)
            poll.register(ended, select.POLLIN)


def become(request: tuple[list[str], dict[str, str], str, int, int, str], streams: list[int]) -> None:
    """Take on the words, environment, directory, user, umask and streams of a process that somebody starts."""
    words, environment, folder, user, umask, program = request
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).prctl(_DUMPABLE, 1, 0, 0, 0)  # as after a start: /proc/self is its own
    os.umask(umask)
    time.tzset()
    sys.stdin = open(0, closefd=False, errors="surrogateescape")
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)
    sys.argv[:] = [program or sys.argv[0], *words]
    if program:
        sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    load_all()
    own = sys.argv[0]
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        if sys.argv[0] == own:
            sys.exit(main())
        runpy.run_path(sys.argv[0], run_name="__main__")
