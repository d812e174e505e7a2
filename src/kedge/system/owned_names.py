# SPDX-License-Identifier: BSD-3-Clause
"""Which process made a file, and whether it still lives: file names that say so, to clean up after killed ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

from kedge.system.spawn import start_of


@functools.cache
def machine_name() -> str:
    """A name for this boot of this kernel and this pid namespace; random where /proc does not tell."""
    try:
        boot = int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""), 16)
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except (OSError, ValueError):
        return os.urandom(6).hex()
    return f"{(boot + namespace) % (1 << 48):012x}"  # the boot's number is random; a hash would cost every start more


def find_user_name(environ: Mapping[str, str] | None = None) -> str:
    """The user's login name; where no database knows it, what `environ` says, or the number."""
    known = environ or {}
    return _look_up_user() or known.get("USER") or known.get("LOGNAME") or str(os.getuid())


@functools.cache
def _look_up_user() -> str:
    import pwd  # late: few processes need it

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # inside a container, or the directory service does not answer
        return ""


def is_running(machine: str, pid: int, start: int) -> bool | None:
    """Whether a process lives; None when it belongs to another host, which cannot be asked.

    A `start` of 0 fits any process with that pid.
    """
    if machine != machine_name():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass  # it is another user's, whose /proc entry may be hidden too
    actual = start_of(pid)
    return actual in (0, start) or (start == 0 and actual > 0)


def own_name(label: str) -> str:
    """A fresh file name that says which process made it; `owner_is_gone` reads it."""
    pid = os.getpid()
    return f"{label}.{machine_name()}.{pid}.{start_of(pid)}.{os.urandom(6).hex()}"


def owner_is_gone(name: str) -> bool | None:
    """Whether the maker of a file called by `own_name` has ended; None when it cannot be known from here."""
    parts = name.split(".")
    try:
        machine, pid, start = parts[-4], int(parts[-3]), int(parts[-2])
    except (ValueError, IndexError):
        return None
    running = is_running(machine, pid, start)
    return None if running is None else not running
