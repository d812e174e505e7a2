# SPDX-License-Identifier: BSD-3-Clause
"""The namespaces of a container, the host's tree that stays reachable until the end, and the exec that ends a start."""

from __future__ import annotations

import errno
import os
import sys

from kedge.posix import libc
from kedge.posix.libc import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_REC,
    MS_SLAVE,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
)
from kedge.posix.spawn import fork_process, replace_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.environment.image_users import ImageUser
    from kedge.runtime.facts import HostFacts, Payload
    from kedge.runtime.options import RunOptions
    from kedge.runtime.processes.fakeroot_namespaces import FakerootNamespaces

    HandOver = Callable[[list[str], list[str], dict[str, str]], OSError]


# The way back to the host's tree, for what must be said when a start fails inside the container.
#
# An image chooses names that are looked up there: its working directory, its program. Were the host's root an open
# file,
# /proc/self/fd would lead to it. So it lies in the queue of a socket, which no name leads through. Modules are names
# too: Python would look for one that it still needs in the image, and run what it finds.


class HostRoot:
    """Made while the root is the host's; the next program does not have it."""

    def __init__(self) -> None:
        found = os.stat("/")
        self._root = found.st_dev, found.st_ino
        self._finders = list(sys.meta_path)
        self._stowed = libc.stow_descriptor(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def leave(self) -> None:
        """Called just before the root is another's: from here on no module is read from a file."""
        # the finders of that module know what is built into Python; all others look into directories
        sys.meta_path[:] = [finder for finder in self._finders if finder.__module__ == "_frozen_importlib"]

    def restore(self) -> None:
        """Let the host's tree be the root, and modules be found again."""
        root = libc.fetch_descriptor(self._stowed)
        try:
            os.fchdir(root)
            os.chroot(".")
        finally:
            os.close(root)
        sys.meta_path[:] = self._finders

    def restore_if_inside(self) -> None:
        """The same, where the root is another's now: whoever reports a failure needs modules of the host."""
        found = os.stat("/")
        if (found.st_dev, found.st_ino) != self._root:
            self.restore()
        sys.meta_path[:] = self._finders


def change_directory(path: str) -> None:
    """Go to a directory of the container; one that lies outside is refused, however its name leads there."""
    os.chdir(path)
    try:
        os.getcwd()  # the kernel finds no name for what cannot be reached from the root
    except OSError:
        os.chdir("/")
        raise PermissionError(errno.EPERM, "it is not in the container", path) from None


# Making the namespaces of a container. A refusal is explained by `refusals`, which names the very setting.

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


# The last step of a start: drop the privileges that the program must not have, and exec it.
#
# The host's tree is gone by then, so everything that this needs is imported before.


class Restrictions:
    """What the program may not do, and what emulates it."""

    def __init__(self, *, is_root: bool) -> None:
        self.capabilities = [] if is_root else list(range(64))  # numbers of those that are dropped; a user has none
        self.emulate: Callable[[], None] | None = None  # fakes success for calls that only real root may make
        self.contain: Callable[[], None] | None = None  # keeps it off the caller's terminal and keys
        self.user: ImageUser | None = None  # whom fake root becomes at the end
        self.fakeroot_namespaces: FakerootNamespaces | None = None  # fake root's own, to be entered last
        self.lets_setuid = False  # programs of the image may be set-user-ID: all whom they can become are fake root's
        self.hand_over: HandOver | None = None  # where the program must not get hold of this interpreter's file

    def prepare(self) -> None:
        """Start what the emulation needs beside the program; to be called while the host's tree is the root."""
        prepare = getattr(self.emulate, "prepare", None)
        if prepare is not None:
            prepare()

    def apply(self) -> None:
        """Apply all of them to this process; there is no way back."""
        if self.fakeroot_namespaces is not None:
            self.fakeroot_namespaces.enter()
        libc.control_process(PR_SET_DUMPABLE, 0)  # nobody looks into this process; the next program is as all are
        if not self.lets_setuid:
            libc.control_process(PR_SET_NO_NEW_PRIVS, 1)
        for number in self.capabilities:
            try:
                libc.control_process(PR_CAPBSET_DROP, number)
            except OSError:
                break  # the numbers ascend, and the kernel knows no more
        if self.emulate is not None:
            self.emulate()
        if self.contain is not None:
            self.contain()
        if self.fakeroot_namespaces is not None:
            self.fakeroot_namespaces.become_user()


def is_own_interpreter() -> bool:
    """Whether the user, and so every program of the user, could change the file of the running interpreter."""
    path = "/proc/self/exe"
    try:
        return os.stat(path).st_uid == os.getuid() or os.access(path, os.W_OK)
    except OSError:
        return False  # no /proc: nothing leads to it


def start_program(payload: Payload, hand_over: HandOver | None = None) -> OSError:
    """Become the program, found along the container's own PATH; returns why it could not be started.

    The problem's `filename` is the file that was there and could not be started, or None where there was none.
    """
    if "PWD" in payload.environ:
        try:
            payload.environ["PWD"] = os.getcwd()
        except OSError:  # somebody removed the directory meanwhile
            del payload.environ["PWD"]
    program, arguments = payload.argv[0], payload.argv[1:]
    paths = [program] if "/" in program else [f"{folder}/{program}" for folder in payload.search]
    if hand_over is not None:
        return hand_over(paths, arguments, payload.environ)
    problem = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        found = _try_path(path, arguments, payload)
        if os.path.lexists(path):
            problem, problem.filename = found, path
            if found.errno != errno.EACCES:
                break
    return problem


def _try_path(path: str, arguments: list[str], payload: Payload) -> OSError:
    try:
        replace_process(path, [path, *arguments], payload.environ)
    except ValueError:
        return refuse_text()
    except OSError as problem:
        if problem.errno != errno.ENOEXEC or _is_program(path):
            return problem
    try:
        # a script that names no interpreter: the shell's business, as in every shell
        replace_process("/bin/sh", ["/bin/sh", path, *arguments], payload.environ)
    except OSError as problem:
        return problem


def refuse_text() -> OSError:
    """The error for a NUL or invalid text, which an image's config can contain and no program can be given."""
    return OSError(errno.EINVAL, "an argument or variable contains a NUL character or invalid text")


def _is_program(path: str) -> bool:
    """Whether a file is a program, maybe for another CPU; one that cannot be read is no script either."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return True
