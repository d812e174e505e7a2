# SPDX-License-Identifier: BSD-3-Clause
"""What a launch finds around it: the job's nodes, this host, the programs that start ranks, free ports, its number."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from kedge.cluster.allocation import Allocation
from kedge.cluster.hosts import MOST_TEXT
from kedge.cluster.schedulers.current_job import find_allocation
from kedge.cluster.this_host import read_this_host
from kedge.container.processes.rank_sharing import find_private_directory
from kedge.errors import FileProblem
from kedge.image.node_cache import own_directory

_PORT_FILES = ("/proc/net/tcp", "/proc/net/tcp6")


def read_allocation_here(environ: Mapping[str, str]) -> Allocation:
    """The nodes of the job that this is, or this host alone."""
    return find_allocation(environ, _read_text, read_this_host(environ))


def _read_text(path: str) -> str:
    """Read a list of nodes; one that is longer than any is read far enough for its reader to refuse it."""
    # O_NONBLOCK: a pipe in the file's place must not make us wait
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return file.read(MOST_TEXT + 1).decode(errors="replace")


def list_busy_ports() -> frozenset[int]:
    """The ports of this host that somebody uses."""
    text = "".join(_read_table(path) for path in _PORT_FILES)
    return frozenset(int(port, 16) for port in re.findall(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) ", text, re.MULTILINE))


def _read_table(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def take_number(job: str) -> int:
    """The number of a launch: one more than that of the job's last one on this host, whose port it must not have.

    The first one's is drawn: who knows a port before it is used can wait there for the ranks.
    """
    try:
        folder = f"{find_private_directory()}/launches"
        own_directory(folder)
    except (OSError, FileProblem):
        return _draw_number()
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", job)[:100] or "none"
    file = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = os.read(file, 20).decode(errors="replace")
        number = int(text) if text.isdecimal() else _draw_number()
        os.pwrite(file, str(number + 1).encode(), 0)
        return number
    finally:
        os.close(file)


def _draw_number() -> int:
    return int.from_bytes(os.urandom(4), "big")
