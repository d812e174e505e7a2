# SPDX-License-Identifier: BSD-3-Clause
"""Making the namespaces of a container. A refusal is explained by `refusals`, which names the very setting."""

from __future__ import annotations

import errno
import os

from kedge.posix import libc
from kedge.posix.constants import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_REC,
    MS_SLAVE,
)
from kedge.posix.spawn import fork_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.runtime.facts import HostFacts
    from kedge.runtime.options import RunOptions


ROOT_ALONE = "root only"
SUBORDINATE = "root and the subordinate ids of /etc/subuid"
OTHER_NAMESPACES = "mounts in a user namespace"  # what is refused when the second step is
_RESTRICTION = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def wants_user_namespace(options: RunOptions, uid: int) -> bool:
    """Whether the container gets a user namespace: always for users, for root only where it is asked for."""
    return uid != 0 or options.userns or options.fakeroot


def enter_wanted_namespace(options: RunOptions, host: HostFacts) -> str:
    """The user namespace of a container; returns what it knows. A build by real root gives files to users for real."""
    has_many = options.fakeroot and not options.ignore_subuid if host.uid else options.step is not None
    return enter_user_namespace(
        host, as_root=options.fakeroot or host.uid == 0, has_many=has_many, is_step=options.step is not None
    )


def enter_user_namespace(host: HostFacts, *, as_root: bool, has_many: bool = False, is_step: bool = False) -> str:
    """A new user namespace that knows one user and one group: ours, or root in their place; returns what it knows.

    With `has_many` it knows more, where the host gives this user subordinate ids; root's then knows all that there are.
    That of a step of a build knows the same numbers on every host.
    """
    helpers = None
    if has_many:
        from kedge.runtime.processes.subordinate_ids import STEP_IDS, IdMapper  # late: only with --fakeroot

        helpers = IdMapper(host, exactly=STEP_IDS - 1 if is_step else 0)
    libc.unshare(CLONE_NEWUSER)
    if helpers is not None and helpers.map():
        return SUBORDINATE if host.uid else "all users of this host"
    uid, gid = host.uid, host.gid
    inside_uid, inside_gid = (0, 0) if as_root else (uid, gid)
    _write("/proc/self/setgroups", "deny")  # the kernel asks for this before it lets a user map groups
    _write("/proc/self/uid_map", f"{inside_uid} {uid} 1\n")
    _write("/proc/self/gid_map", f"{inside_gid} {gid} 1\n")
    return ROOT_ALONE if as_root else "the calling user only"


def is_restricted() -> bool:
    """Whether AppArmor may give us a user namespace with which nothing can be done."""
    try:
        file = os.open(_RESTRICTION, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(file, 8).strip() == b"1"
    finally:
        os.close(file)


def try_namespaces(options: RunOptions, host: HostFacts) -> None:
    """Make the namespaces in a child that ends; raises OSError when they are refused.

    There is no way out of a user namespace, and inside one a setuid runtime is of no use.
    """
    child = fork_process()
    if child == 0:
        number = errno.EPERM
        try:
            enter_user_namespace(host, as_root=False)
            enter_other_namespaces(options)
            if options.pid:
                enter_process_namespace()
            number = 0
        except OSError as problem:
            number = problem.errno or number
        finally:
            os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, os.strerror(number))


def enter_other_namespaces(options: RunOptions) -> None:
    """The mount namespace, and those that were asked for; the one of process ids comes later."""
    flags = CLONE_NEWNS
    for is_wanted, flag in (
        (options.ipc, CLONE_NEWIPC),
        (options.uts, CLONE_NEWUTS),
        (options.net, CLONE_NEWNET),
    ):
        flags |= flag if is_wanted else 0
    libc.unshare(flags)
    if options.net:
        libc.raise_loopback()
    # What the host mounts later still arrives (automounted homes), what we mount stays here.
    libc.mount("none", "/", "", MS_REC | MS_SLAVE)


def enter_process_namespace() -> None:
    """A process-id namespace: it begins with the next child. FUSE servers were started before, and are not in it."""
    libc.unshare(CLONE_NEWPID)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
