# SPDX-License-Identifier: BSD-3-Clause
"""What a FUSE server may reach. It reads an image that strangers made, and one that takes it over acts as the server.

So a server sees the programs of this host, the files it serves and nothing else: no home, no /proc, no /tmp. It opens
no connection, and gets no more rights by starting a program. Its variables and open files are few (`fuse_program`).
A program of the user's home alone sees everything: what it needs lies where the secrets do.
"""

from __future__ import annotations

import os

from kedge.system import libc

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/dev/null")
_BASE = "/dev"  # is on every host, and of no use to a server: its device is open


class Shown:
    """Files of the host, open: they can be bound when their names lead elsewhere."""

    def __init__(self, program: str, files: list[str]) -> None:
        self._links: list[tuple[str, str]] = []
        self._sources: list[tuple[str, int]] = []
        tops = ["/" + path.split("/")[1] for path in (program, os.path.realpath(program))]
        home = os.environ.get("HOME", "") + "/"
        self.is_all = any(home.startswith(f"{top}/") for top in tops)
        if not self.is_all:
            libraries = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder[:1] == "/"]
            for path in dict.fromkeys((*_PROGRAMS, *tops, *libraries, *files)):  # /bin may be both
                self._add(path.rstrip("/"))

    def _add(self, path: str) -> None:
        if any(path == known or path.startswith(f"{known}/") for known, _ in self._sources) or not path:
            return
        if path in _PROGRAMS and os.path.islink(path):
            self._links.append((os.readlink(path), path))
            return
        try:
            self._sources.append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
        except OSError:
            return  # a directory that this host has not; of a file the server says it

    def put(self, root: str) -> None:
        """Let them appear below an empty directory."""
        for target, path in self._links:
            os.symlink(target, root + path)
        for path, file in self._sources:
            source = f"/proc/self/fd/{file}"
            if os.path.isdir(source):
                os.makedirs(root + path, exist_ok=True)
            else:
                os.makedirs(os.path.dirname(root + path), exist_ok=True)
                os.close(os.open(root + path, os.O_CREAT | os.O_CLOEXEC, 0o600))
            libc.mount(source, root + path, "", libc.MS_BIND | libc.MS_REC)
            os.close(file)


def confine_server(program: str, files: list[str], *, has_namespace: bool = False) -> None:
    """Give this process, which becomes a server of a mount that is there, a mount namespace with these files alone."""
    refuse_sockets = _prepare_filter()
    if not has_namespace:
        libc.unshare(libc.CLONE_NEWNS)  # before files are opened: only those of one's own namespace can be bound
    shown = Shown(program, files)
    if not shown.is_all:
        libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
        libc.mount("kedge", _BASE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755")
        shown.put(_BASE)
        libc.enter_root(_BASE)
    restrict_server(refuse_sockets)


def confine_mounter(program: str, files: list[str], root: str) -> bool:
    """The same for a server that mounts by itself, for this mount namespace to see: a directory of it is its root.

    Whether it is: not for a program of the user's home.
    """
    refuse_sockets = _prepare_filter()
    shown = Shown(program, files)
    if not shown.is_all:
        shown.put(root)
        os.chroot(root)
    restrict_server(refuse_sockets)
    return not shown.is_all


def restrict_server(refuse_sockets: bytes | None = None) -> None:
    """What holds for servers that mount by themselves, too: no new privileges, and no sockets."""
    program = _prepare_filter() if refuse_sockets is None else refuse_sockets
    libc.control_process(libc.PR_SET_NO_NEW_PRIVS, 1)
    if program:
        libc.filter_calls(program)


def _prepare_filter() -> bytes:
    from kedge.container.seccomp import make_socketless_filter  # late: only in the process of a server

    return make_socketless_filter(os.uname().machine)
