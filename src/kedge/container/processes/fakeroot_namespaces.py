# SPDX-License-Identifier: BSD-3-Clause
"""Namespaces of its own for fake root, below those in which its container was built.

Root of a user namespace may look into every process of it and change every mount: it could enter process 1 and the FUSE
servers, whose root is the host's, and let a read-only bind be writable. So the program gets one namespace more: in it
it is root as before, but what was there when it began belongs to the one above, and is out of its reach.
"""

from __future__ import annotations

import os
import stat

from kedge.system import libc
from kedge.system.libc import CLONE_NEWNS, CLONE_NEWUSER, PR_SET_DUMPABLE
from kedge.system.spawn import fork_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.container.image_users import ImageUser

_MAPS = ("uid_map", "gid_map")


class FakerootNamespaces:
    """To be made while /proc is the host's, in the process that becomes the program."""

    def __init__(self, user: ImageUser | None = None) -> None:
        self._maps = {name: repeat_map(_read(f"/proc/self/{name}")) for name in _MAPS}
        self._user = user if user is not None and (user.uid or user.gid or user.groups) else None
        if self._user is not None and not self._needs_mapper():
            # The one user there is has another number here: the kernel says so to whoever asks, of files too.
            self._maps = {"uid_map": f"{self._user.uid} 0 1\n", "gid_map": f"{self._user.gid} 0 1\n"}
            self._user = None
        # in a socket's queue, where no name that an image chooses leads to it
        self._stowed = libc.stow_descriptor(os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def enter(self) -> None:
        """Raises what explains it where the kernel refuses."""
        libc.control_process(PR_SET_DUMPABLE, 1)  # else /proc/self is root's, and no map can be written
        process = libc.fetch_descriptor(self._stowed)
        try:
            mapper = self._fork_mapper(process) if self._needs_mapper() else None
            libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
            if mapper is None:
                self._write_maps(process)
            else:
                mapper.map()
        except OSError as problem:
            raise _explain(problem) from problem
        finally:
            os.close(process)
            os.close(self._stowed)

    def become_user(self) -> None:
        """Be the user that the program is to run as; root may do what nobody else may, so this comes last."""
        if self._user is not None:
            _change_user(self._user)

    def _needs_mapper(self) -> bool:
        """A process may map itself; more users only another may that is root of the namespace above."""
        return any(text.count("\n") > 1 or not text.endswith(" 1\n") for text in self._maps.values())

    def _write_maps(self, process: int) -> None:
        for name, text in self._maps.items():
            file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)

    def _fork_mapper(self, process: int) -> _Mapper:
        return _Mapper(lambda: self._write_maps(process))


class _Mapper:
    """A child that stays in the namespace above, and writes the maps when it is told to."""

    def __init__(self, write_maps: Callable[[], None]) -> None:
        reading, self._writing = os.pipe2(os.O_CLOEXEC)
        self._child = fork_process()
        if self._child == 0:
            number = 1
            try:
                os.close(self._writing)
                if os.read(reading, 1):
                    write_maps()
                    number = 0
            except OSError as problem:
                number = problem.errno or number
            finally:
                os._exit(number)
        os.close(reading)

    def map(self) -> None:
        os.write(self._writing, b"m")
        os.close(self._writing)
        number = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        if number:
            raise OSError(number, os.strerror(number) if number > 0 else "its helper process was killed")


def _change_user(user: ImageUser) -> None:
    """Be another of the users that the namespace knows."""
    try:
        for stream in (0, 1, 2):
            if stat.S_ISFIFO(
                os.fstat(stream).st_mode
            ):  # else nobody could open /dev/stdout; a terminal is the caller's
                os.fchown(stream, user.uid, user.gid)
        os.setgroups(list(dict.fromkeys((user.gid, *user.groups))))
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    except OSError as problem:
        from kedge.errors import CannotStart  # late: only for an error

        raise CannotStart(
            f"cannot run as user {user.uid}:{user.gid} of the image: {problem.strerror}",
            hint="your subordinate ids in /etc/subuid and /etc/subgid do not reach that number: use --ignore-subuid",
        ) from problem


def repeat_map(text: str) -> str:
    """A map of users that is, in a namespace below, what `text` is in this one: everybody as himself."""
    return "".join(f"{line.split()[0]} {line.split()[0]} {line.split()[2]}\n" for line in text.splitlines())


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _explain(problem: OSError) -> Exception:
    from kedge.errors import NamespaceRefused  # late: only for an error

    return NamespaceRefused(
        f"--fakeroot needs a second user namespace, which the kernel refuses: {problem.strerror}",
        hint="leave out --fakeroot, or check the limit: sysctl user.max_user_namespaces",
    )
