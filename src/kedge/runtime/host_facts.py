# SPDX-License-Identifier: BSD-3-Clause
"""Gathers the facts about the host and the caller that a plan needs."""

from __future__ import annotations

import os

from kedge.posix.views import DirectoryView
from kedge.runtime.environment.identity import find_gecos, find_groups, find_user
from kedge.runtime.facts import HostFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def gather_host(environ: Mapping[str, str]) -> HostFacts:
    """The host as this process sees it."""
    uid, gid = os.getuid(), os.getgid()
    user, home, login_shell = find_user(uid)
    cwd = _find_folder(environ)
    umask = os.umask(0)
    os.umask(umask)
    return HostFacts(
        view=DirectoryView("/", is_still=True),
        environ=copy_environ(environ),
        uid=uid,
        gid=gid,
        groups=find_groups(gid),
        user=user,
        gecos=find_gecos(uid),
        home=home,
        login_shell=login_shell,
        cwd=cwd or "/",
        has_folder=bool(cwd),
        umask=umask,
        machine=os.uname().machine,
    )


def copy_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables, without LC_CTYPE where it is Python that set it at its start (PEP 538)."""
    copied = dict(environ)
    if copied.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8") and not copied.get("LC_ALL"):
        try:
            with open("/proc/self/environ", "rb") as stream:
                given = b"\0" + stream.read()
        except OSError:
            return copied
        if b"\0LC_CTYPE=" not in given:
            del copied["LC_CTYPE"]
    return copied


def _find_folder(environ: Mapping[str, str]) -> str:
    """The current directory as the shell calls it, with its links; empty when it was deleted or may not be read."""
    try:
        real = os.getcwd()
    except OSError:
        return ""
    shown = environ.get("PWD", "")
    if shown == real or not shown.startswith("/") or ".." in shown.split("/"):
        return real
    try:
        return shown if os.path.samestat(os.stat(shown), os.stat(".")) else real
    except OSError:
        return real


def read_memory(root: str = "") -> int:
    """Bytes of memory that this process may use: the machine's, or what its control groups leave of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _read_text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            base, name = f"{root}/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        elif not controllers:
            base, name = f"{root}/sys/fs/cgroup", "memory.max"
        else:
            continue
        while True:  # a limit of every group above holds too
            limit = _read_text(f"{base}{path}/{name}").strip()
            memory = min(memory, int(limit)) if limit.isdigit() else memory
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]
    return memory


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def find_terminal() -> str:
    """The terminal that is our standard input; one of another container has no name here."""
    try:
        return os.ttyname(0)
    except OSError:
        return ""


def is_privileged() -> bool:
    """Whether we are root of the whole machine, not of a user namespace only."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return True  # a kernel without user namespaces
