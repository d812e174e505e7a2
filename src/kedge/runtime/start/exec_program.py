# SPDX-License-Identifier: BSD-3-Clause
"""The last step of a start: drop the privileges that the program must not have, and exec it.

The host's tree is gone by then, so everything that this needs is imported before.
"""

from __future__ import annotations

import errno
import os

from kedge.posix import libc
from kedge.posix.constants import PR_CAPBSET_DROP, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
from kedge.posix.spawn import replace_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.environment.image_users import ImageUser
    from kedge.runtime.facts import Payload
    from kedge.runtime.processes.fakeroot_namespaces import FakerootNamespaces

    HandOver = Callable[[list[str], list[str], dict[str, str]], OSError]


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
