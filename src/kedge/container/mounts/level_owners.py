# SPDX-License-Identifier: BSD-3-Clause
"""The owners and modes of an image's files, for a step of a build whose namespace knows the image's users.

On a node all files are the caller's, none is set-user-ID, and a table beside each directory says what the image says.
Above such a directory lies one more layer with just these files, as they are in the image. It is in memory: it goes
with the container, and no file of another user is ever in a cache.
"""

from __future__ import annotations

import os
import stat

from kedge.base.owner_records import MODE_ATTRIBUTE, OWNER_ATTRIBUTE, decode_records
from kedge.container.mount_operations import OPEN_DIRECTORY, name_descriptor, open_inside
from kedge.image.node_cache import read_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Owned = dict[bytes, tuple[int, int, int | None]]  # user, group, and the mode where the node has another, by path

_MOST_FILES = 4000  # of all levels: they are made anew for each step
_MOST_BYTES = 64 << 20
_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 30
_MARKS = ("user.overlay.", "trusted.overlay.", "user.fuseoverlayfs.")  # what is hidden stays so by the level itself
_NOTES = (OWNER_ATTRIBUTE, MODE_ATTRIBUTE)  # for steps that have one user


def find_owned(levels: Sequence[str], count: int) -> tuple[str, ...] | None:
    """The directories that have such files, each in its place, "" for the others.

    None where they are too many or too large to be made for each step, or their numbers are not below `count`.
    """
    tables = [read_owned(level) for level in levels]
    if sum(map(len, tables)) > _MOST_FILES:
        return None
    if any(number >= count for table in tables for uid, gid, _ in table.values() for number in (uid, gid)):
        return None
    if sum(map(_measure, levels, tables)) > _MOST_BYTES:
        return None
    return tuple(level if table else "" for level, table in zip(levels, tables, strict=True))


def read_owned(level: str) -> Owned:
    """The files below an unpacked image's root whose owner or mode is another in the image."""
    return {path: (uid, gid, mode) for path, uid, gid, mode in decode_records(read_owners(level)) if path}


def _measure(level: str, owners: Owned) -> int:
    total = 0
    for path in owners:
        try:
            status = os.lstat(os.fsencode(level) + b"/" + path)
        except OSError:
            continue
        total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def restore_owners(level: str, target: str) -> None:
    """Make such files of a level again in an empty directory, as they are in the image; raises OSError."""
    copy = _OwnedCopy(level, target)
    try:
        for path, (uid, gid, mode) in sorted(read_owned(level).items()):
            copy.add(path, (uid, gid), mode)
        copy.set_times()
    finally:
        copy.close()


class _OwnedCopy:
    """Some files of a tree, with the directories above them."""

    def __init__(self, level: str, target: str) -> None:
        self._level = os.open(level, OPEN_DIRECTORY)
        self._target = os.open(target, OPEN_DIRECTORY)
        self._folders: dict[bytes, os.stat_result] = {}  # those that were made, those above first
        self._links: dict[tuple[int, int], bytes] = {}  # files with several names, by device and inode

    def close(self) -> None:
        os.close(self._level)
        os.close(self._target)

    def add(self, path: bytes, owner: tuple[int, int], mode: int | None = None) -> None:
        """One file or directory; what the level does not have any more is passed over."""
        above, _, name = path.rpartition(b"/")
        if above and above not in self._folders:
            self.add(above, (0, 0))
        try:
            folder = open_inside(self._level, "/" + os.fsdecode(above))
        except OSError:
            return
        try:
            handle = os.open(name, _HANDLE, dir_fd=folder)
        except FileNotFoundError:
            return
        finally:
            os.close(folder)
        try:
            self._make(path, handle, owner, mode)
        finally:
            os.close(handle)

    def _make(self, path: bytes, handle: int, owner: tuple[int, int], mode: int | None) -> None:
        status = os.fstat(handle)
        kind = stat.S_IFMT(status.st_mode)
        key = status.st_dev, status.st_ino
        if kind != stat.S_IFDIR and key in self._links:
            os.link(self._links[key], path, src_dir_fd=self._target, dst_dir_fd=self._target, follow_symlinks=False)
            return
        if kind == stat.S_IFDIR:
            os.mkdir(path, 0o700, dir_fd=self._target)
            self._folders[path] = status
        elif kind == stat.S_IFREG:
            self._copy(path, handle)
        elif kind == stat.S_IFLNK:
            os.symlink(os.readlink(b"", dir_fd=handle), path, dir_fd=self._target)
        elif kind == stat.S_IFIFO:
            os.mkfifo(path, 0o600, dir_fd=self._target)
        else:
            return
        if status.st_nlink > 1 and kind != stat.S_IFDIR:
            self._links[key] = path
        os.chown(path, *owner, dir_fd=self._target, follow_symlinks=False)
        if kind != stat.S_IFLNK:
            os.chmod(path, stat.S_IMODE(status.st_mode) if mode is None else mode, dir_fd=self._target)
            self._copy_attributes(path, handle)
        self._set_time(path, status)

    def _copy(self, path: bytes, handle: int) -> None:
        source = os.open(name_descriptor(handle), os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._target)
        try:
            while os.sendfile(target, source, None, _PIECE):
                pass
        finally:
            os.close(source)
            os.close(target)

    def _copy_attributes(self, path: bytes, handle: int) -> None:
        """What the file system in memory takes: it has no attributes of users before Linux 6.6."""
        source = name_descriptor(handle)
        target = os.fsencode(name_descriptor(self._target)) + b"/" + path
        for name in os.listxattr(source):
            if not name.startswith((*_MARKS, *_NOTES)):
                try:
                    os.setxattr(target, name, os.getxattr(source, name))
                except OSError:
                    continue

    def set_times(self) -> None:
        """Of the directories, once nothing is made in them any more."""
        for path, status in self._folders.items():
            self._set_time(path, status)

    def _set_time(self, path: bytes, status: os.stat_result) -> None:
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(path, ns=times, dir_fd=self._target, follow_symlinks=False)
