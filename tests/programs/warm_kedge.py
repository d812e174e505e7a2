# SPDX-License-Identifier: BSD-3-Clause
"""A Python that has imported kedge, and becomes a kedge process each time it is asked: by fork, not by a start.

`tests/builders/warm_kedge.py` starts it and asks. A request comes with five files: its words as JSON, the three
standard streams, and a socket that gets the process's number at once, and its status and CPU seconds at its end.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import io
import json
import locale
import os
import pkgutil
import select
import signal
import socket
import sys
import time

_FILES = 5  # of a request
_DUMPABLE = 4  # PR_SET_DUMPABLE


def load_all() -> None:
    """Import what any verb imports."""
    import kedge

    for each in pkgutil.walk_packages(kedge.__path__, "kedge."):
        if not each.name.endswith(("__main__", ".runner")):
            with contextlib.suppress(ImportError):
                importlib.import_module(each.name)
    for name in ("rich.console", "rich.markdown", "rich.progress", "rich.table", "urllib3", "zstandard", "subprocess"):
        importlib.import_module(name)


def serve(asked: socket.socket) -> dict[str, object] | None:
    """Answer requests until nobody can ask any more; in a child, what it is to be."""
    children: dict[int, tuple[int, socket.socket]] = {}  # by the file that tells of its end
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while True:
        for file, _ in poll.poll():
            if file != asked.fileno():
                poll.unregister(file)
                child, answer = children.pop(file)
                _, status, used = os.wait4(child, 0)
                with contextlib.suppress(OSError):
                    answer.send(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]).encode())
                answer.close()
                os.close(file)
                continue
            _, packed, _, _ = asked.recvmsg(1, socket.CMSG_SPACE(_FILES * 4))
            if not packed:
                return None
            files = array.array("i", packed[0][2])
            with open(files[0], "rb") as text:
                request: dict[str, object] = json.loads(text.read())
            child = os.fork()
            if not child:
                become(request, list(files[1:4]))
                return request
            answer = socket.socket(fileno=files[4])
            answer.send(json.dumps(child).encode())
            for each in files[1:4]:
                os.close(each)
            ended = os.pidfd_open(child)
            children[ended] = (child, answer)
            poll.register(ended, select.POLLIN)


def become(request: dict[str, object], streams: list[int]) -> None:
    """Take on the environment, the directory, the streams and the user of a process that somebody starts."""
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(3, max(streams) + 1024)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(str(request["folder"]))
    user = int(str(request["user"]))
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).prctl(_DUMPABLE, 1, 0, 0, 0)  # as after a start: /proc/self is its own
    os.umask(int(str(request["umask"])))
    time.tzset()
    encoding = (
        locale.getencoding() if hasattr(locale, "getencoding") else locale.getpreferredencoding(do_setlocale=False)
    )
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding, "surrogateescape")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding, line_buffering=os.isatty(1))
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), encoding, "backslashreplace", line_buffering=True)
    sys.argv[1:] = request["words"]  # type: ignore[assignment]


if __name__ == "__main__":
    from kedge.cli.entry import main

    load_all()
    gc.collect()
    gc.freeze()
    if serve(socket.socket(fileno=int(sys.argv[1]))) is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
