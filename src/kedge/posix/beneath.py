# SPDX-License-Identifier: BSD-3-Clause
"""Work below a folder that stays there: folders are opened one by one, never through a symbolic link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(name: bytes | str | Path, *, at: int | None = None) -> int:
    """A descriptor of the folder `name` (in the folder `at`); a symbolic link in its place is an error."""
    return os.open(name, FOLDER_FLAGS, dir_fd=at)


def name_in(folder: int, name: bytes) -> bytes:
    """A path for calls that take no folder descriptor (extended attributes): only its last component is ours."""
    return b"/proc/self/fd/%d/%s" % (folder, name)


def remove_tree(path: Path) -> None:
    """Delete a folder and all below it, read-only folders too; links are deleted, not followed. Missing is fine."""
    try:
        parent = open_folder(path.parent.resolve())
    except FileNotFoundError:
        return
    try:
        _remove_entry(parent, os.fsencode(path.name))
    finally:
        os.close(parent)


def _remove_entry(parent: int, name: bytes) -> None:
    """Without recursion: a hostile tree may be deeper than Python's stack. Descriptors are one per level."""
    if _unlink_if_plain(parent, name):
        return
    levels = [(_open_writable(parent, name), name)]
    try:
        while levels:
            folder, own_name = levels[-1]
            deeper = _remove_plain(folder)
            if deeper is not None:
                levels.append((_open_writable(folder, deeper), deeper))
                continue
            os.close(folder)
            levels.pop()
            os.rmdir(own_name, dir_fd=levels[-1][0] if levels else parent)
    finally:
        for folder, _ in levels:
            os.close(folder)


def _remove_plain(folder: int) -> bytes | None:
    """Delete what is no folder; returns the first folder met, None when nothing is left."""
    for name in os.listdir(folder):
        raw = os.fsencode(name)
        if not _unlink_if_plain(folder, raw):
            return raw
    return None


def _unlink_if_plain(parent: int, name: bytes) -> bool:
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            return False
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    return True


def _open_writable(parent: int, name: bytes) -> int:
    """Open a folder after giving ourselves the right to read and change it."""
    try:
        folder = open_folder(name, at=parent)
    except PermissionError:
        _allow(parent, name)
        return open_folder(name, at=parent)
    if os.fstat(folder).st_mode & 0o700 != 0o700:
        os.fchmod(folder, 0o700)
    return folder


def _allow(parent: int, name: bytes) -> None:
    """Give ourselves the right to read a folder; by a descriptor, for a link may have taken its name by now."""
    file = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{file}", 0o700)  # noqa: PTH101 - fchmod takes no such descriptor
    finally:
        os.close(file)
