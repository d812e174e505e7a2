# SPDX-License-Identifier: BSD-3-Clause
"""A kedge that has loaded its modules and becomes a command for each request: a child, as `python -m kedge` would be.

`kedge_loaded.py NUMBER` answers on the listening socket of that number, until its standard input ends. A request is one
message with words, variables, directory and umask, and three descriptors for its streams; the answers are the number of
the process, and when that has ended its status and the CPU seconds that it used.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

import kedge

_MODULES = """
    cli.console cli.convert cli.guard cli.inspect cli.main cli.pull cli.push cli.report
    formats.sif.reader formats.squashfs.check_image formats.squashfs.reader host.memory
    ops.images.convert ops.images.inspect ops.images.make_layers ops.images.pull ops.images.push ops.images.write_image
    registry.blob_stream registry.client registry.transport
"""
_MOST = 1 << 20  # bytes of a request


def main() -> None:
    """Serve; a child returns from here as the command that it has become."""
    for name in _MODULES.split():
        importlib.import_module(f"kedge.{name}")
    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=int(sys.argv[1]))
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process
    poll = select.poll()
    for number in (0, listener.fileno()):
        poll.register(number, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number == 0:
                return
            if number in running:
                poll.unregister(number)
                _report(number, *running.pop(number))
                continue
            asked, _ = listener.accept()
            _, user, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user != os.geteuid():  # everybody on the machine can reach the address
                asked.close()
                continue
            request, descriptors, _, _ = socket.recv_fds(asked, _MOST, 3)
            child = os.fork()
            if child == 0:
                for each in (listener, asked, *(connection for _, connection in running.values())):
                    each.close()
                for descriptor in running:
                    os.close(descriptor)
                _become(descriptors, *json.loads(request))
            for descriptor in descriptors:
                os.close(descriptor)
            asked.send(b"%d" % child)
            process = os.pidfd_open(child)
            running[process] = child, asked
            poll.register(process, select.POLLIN)


def _report(descriptor: int, child: int, asked: socket.socket) -> None:
    _, status, usage = os.wait4(child, 0)
    os.close(descriptor)
    with contextlib.suppress(OSError):  # who asked has given up
        asked.send(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime]).encode())
    asked.close()


def _become(descriptors: list[int], words: list[str], variables: dict[str, str], place: str, umask: int) -> None:
    """What `python -m kedge` does when its modules are loaded."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(place)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    sys.argv = [f"{os.path.dirname(kedge.__file__)}/__main__.py", *words]
    from kedge.cli.entry import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
