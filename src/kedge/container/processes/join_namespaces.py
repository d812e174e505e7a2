# SPDX-License-Identifier: BSD-3-Clause
"""Entering the namespaces of a process that lives: a running instance, or another rank of the same job step."""

from __future__ import annotations

import errno
import os

from kedge.system import libc
from kedge.system.libc import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    NS_GET_PARENT,
)
from kedge.system.spawn import start_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# In the order of entering: the user namespace gives the right to the others, the mounts change what /proc is.
KINDS = {
    "user": CLONE_NEWUSER,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "net": CLONE_NEWNET,
    "pid": CLONE_NEWPID,
    "cgroup": CLONE_NEWCGROUP,
    "mnt": CLONE_NEWNS,
}


def join_namespaces(pid: int, kinds: tuple[str, ...] = tuple(KINDS), *, start: int = 0) -> bool:
    """Enter the namespaces of `pid` that are not ours already; root and working folder are then the container's root.

    Returns whether a process-id namespace is among them: it begins with the next child, so the caller must fork.
    `start` is the process's start time where it is known, so that a number used again is not taken for it.
    """
    files: list[int] = []
    try:
        found = [(kind, _open_other(pid, kind, files)) for kind in KINDS if kind in kinds]
        wanted = [(kind, file) for kind, file in found if file >= 0]
        # Compared when all is open: from here on the number may go to whom it will.
        if start and start_of(pid) != start:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        for kind, file in _open_parents(wanted, files):
            libc.join_namespace(file, KINDS[kind])
        return "pid" in [kind for kind, _ in wanted]
    except OSError as problem:
        _refuse(pid, problem)
    finally:
        for file in files:
            os.close(file)


def _open_other(pid: int, kind: str, files: list[int]) -> int:
    """The process's namespace, open; -1 where it is ours too or the kernel does not know the kind."""
    # The process that supervises a program is not in its process-id namespace; its children are.
    name = "pid_for_children" if kind == "pid" else kind
    try:
        own = os.stat(f"/proc/self/ns/{name}")
    except FileNotFoundError:
        return -1
    file = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    files.append(file)
    other = os.fstat(file)
    return -1 if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino) else file


def _open_parents(wanted: list[tuple[str, int]], files: list[int]) -> list[tuple[str, int]]:
    """Add the user namespaces between ours and the process's: fake root has one below its container's.

    The other namespaces belong to the upper one; mounts to the lower, which comes just before them.
    """
    if not wanted or wanted[0][0] != "user":
        return wanted
    import fcntl  # late: only those who join need it

    own = os.stat("/proc/self/ns/user").st_ino
    users = [wanted[0][1]]
    while True:
        try:
            parent = fcntl.ioctl(users[0], NS_GET_PARENT)
        except OSError:
            break  # it is outside of what we may see, so ours is no ancestor: the kernel will say so
        files.append(parent)
        if os.fstat(parent).st_ino == own:
            break
        users.insert(0, parent)
    others = [(kind, file) for kind, file in wanted[1:] if kind != "mnt"]
    mounts = [(kind, file) for kind, file in wanted[1:] if kind == "mnt"]
    return [("user", users[0]), *others, *(("user", file) for file in users[1:]), *mounts]


def _refuse(pid: int, problem: OSError) -> NoReturn:
    from kedge.errors import InstanceProblem  # late: only failures need it

    if problem.errno in (errno.ENOENT, errno.ESRCH):
        raise InstanceProblem(
            f"process {pid}, which held the container, has ended", hint="list running instances: kedge instance list"
        ) from problem
    if problem.errno in (errno.EACCES, errno.EPERM):
        raise InstanceProblem(
            f"the container of process {pid} belongs to another user: {problem.strerror}",
            hint="only the user who started an instance can enter it",
        ) from problem
    raise InstanceProblem(f"cannot enter the container of process {pid}: {problem.strerror}") from problem
