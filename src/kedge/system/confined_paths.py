# SPDX-License-Identifier: BSD-3-Clause
"""Work below a directory that stays there: directories are opened one by one, never through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_OPEN = 64  # of the directories on the way down: trees may be deeper than a process may have files open


def open_folder(name: bytes | str | Path, *, at: int | None = None) -> int:
    """A descriptor of the directory `name` (in the directory `at`); a symbolic link in its place is an error."""
    return os.open(name, _FOLDER_FLAGS, dir_fd=at)


def name_in(folder: int, name: bytes) -> bytes:
    """A path for calls that take no directory descriptor (extended attributes): only its last component is ours."""
    return b"/proc/self/fd/%d/%s" % (folder, name)


def remove_tree(path: Path) -> None:
    """Delete a directory with all below it, also read-only ones; links are not followed. Missing is fine."""
    try:
        parent = open_folder(path.parent.resolve())
    except FileNotFoundError:
        return
    try:
        remove_entry(parent, os.fsencode(path.name))
    finally:
        os.close(parent)


class Descent:
    """The way down a tree, by descriptors of its directories; it takes over those that it is given.

    Of a deep way only the last directories stay open. One above them is opened again from below, and must be the one it
    was: who moves a directory while we are in it does not lead us elsewhere.
    """

    def __init__(self, folder: int) -> None:
        self._known: list[tuple[int, int]] = []
        self._open: list[int] = []
        self.enter(folder)

    @property
    def folder(self) -> int:
        """The directory at the end of the way."""
        return self._open[-1]

    def enter(self, folder: int) -> None:
        """Go on to a directory in the last one."""
        self._open.append(folder)
        self._known.append(_identify(folder))
        if len(self._open) > _KEPT_OPEN:
            os.close(self._open.pop(0))

    def leave(self) -> None:
        """Go back to the directory above."""
        left = self._open.pop()
        self._known.pop()
        try:
            if not self._open and self._known:
                self._open.append(open_folder("..", at=left))
                if _identify(self._open[0]) != self._known[-1]:
                    raise OSError(errno.ESTALE, "a directory was moved while kedge worked in it")
        finally:
            os.close(left)

    def close(self) -> None:
        """Close what is open."""
        while self._open:
            os.close(self._open.pop())


def _identify(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def remove_entry(parent: int, name: bytes) -> None:
    """Delete `name` in an open directory with all below it; missing is fine.

    Without recursion: a hostile tree may be deeper than Python's stack.
    """
    if _unlink_if_plain(parent, name):
        return
    way = Descent(os.dup(parent))
    names: list[bytes] = []
    try:
        deeper: bytes | None = name
        while deeper is not None or names:
            if deeper is not None:
                way.enter(open_writable(way.folder, deeper))
                names.append(deeper)
            else:
                way.leave()
                os.rmdir(names.pop(), dir_fd=way.folder)
            deeper = _remove_plain(way.folder) if names else None
    finally:
        way.close()


def _remove_plain(folder: int) -> bytes | None:
    """Delete what is no directory; returns the first directory met, None when nothing is left."""
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


def open_writable(parent: int, name: bytes) -> int:
    """Open a directory after giving ourselves the right to read and change it."""
    try:
        folder = open_folder(name, at=parent)
    except PermissionError:
        _allow(parent, name)
        return open_folder(name, at=parent)
    if os.fstat(folder).st_mode & 0o700 != 0o700:
        os.fchmod(folder, 0o700)
    return folder


def _allow(parent: int, name: bytes) -> None:
    """Give ourselves the right to read a directory; by a descriptor, for a link may have taken its name by now."""
    file = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{file}", 0o700)  # noqa: PTH101 - fchmod takes no such descriptor
    finally:
        os.close(file)
