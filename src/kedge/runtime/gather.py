# SPDX-License-Identifier: BSD-3-Clause
"""Gathers the facts about the host and the caller that a plan needs."""

from __future__ import annotations

import os

from kedge.runtime.facts import HostFacts
from kedge.runtime.identity import find_gecos, find_groups, find_user
from kedge.runtime.views import FolderView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def gather_host(environ: Mapping[str, str]) -> HostFacts:
    """The host as this process sees it."""
    uid, gid = os.getuid(), os.getgid()
    user, home, login_shell = find_user(uid)
    umask = os.umask(0)
    os.umask(umask)
    return HostFacts(
        view=FolderView("/", is_still=True),
        environ=environ,
        uid=uid,
        gid=gid,
        groups=find_groups(gid),
        user=user,
        gecos=find_gecos(uid),
        home=home,
        login_shell=login_shell,
        cwd=find_folder(),
        umask=umask,
        machine=os.uname().machine,
        memory=read_memory(),
    )


def find_folder() -> str:
    """The current folder; `/` when it was deleted or may not be read."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


def read_memory() -> int:
    """Bytes of memory of this machine; cheap, and exact enough for the size of a file system in memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
