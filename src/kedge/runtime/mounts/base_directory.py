# SPDX-License-Identifier: BSD-3-Clause
"""The directory on which a container is built: one that is ours or empty, for what is in it is covered meanwhile."""

from __future__ import annotations

import os
import stat

from kedge.runtime.images.node_cache import node_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_EMPTY_FOLDERS = ("/mnt", "/media", "/srv", "/var/empty", "/var/opt")


def choose_base(environ: Mapping[str, str]) -> str:
    """An existing folder: the session folder of the node's place, or one that is empty where nothing can be written."""
    for find_place in (node_directory, _memory_directory):
        try:
            return own_directory(find_place(environ) + "/session")
        except _list_refusals():
            continue
    for folder in _EMPTY_FOLDERS:
        try:
            if not os.listdir(folder):
                return folder
        except OSError:
            continue
    return "/tmp"


def _list_refusals() -> tuple[type[Exception], ...]:
    """What says that there is no such place; Python asks for it only once something was raised."""
    from kedge.errors import FileProblem, InvalidSetting, NoSpace  # late: success needs no errors

    return OSError, FileProblem, InvalidSetting, NoSpace


def _memory_directory(_: Mapping[str, str]) -> str:
    return own_directory(f"/dev/shm/kedge-{os.getuid()}")


def own_directory(path: str) -> str:
    """A directory that only this user can write, made where it is missing; raises OSError where it is another's."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        # Whoever may write to it could put another directory in its place while the container is built there.
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            raise
    return path
