# SPDX-License-Identifier: BSD-3-Clause
"""Finding and making things in a tree that others may change meanwhile: a link may be where a folder was a moment ago.

So nothing is checked first and used later: the kernel finds each name, in one call that never leaves the root (Linux
5.6); before that, and to make things, directories are opened one in the other. What is done is done to what was opened.
"""

from __future__ import annotations

import errno
import os
import stat

from kedge.posix import libc
from kedge.posix.views import MAXIMUM_LINKS, DirectoryView, split_path

OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f"}


def open_inside(root: int, path: str, flags: int = os.O_PATH) -> int:
    """A descriptor of what a name leads to, as if the open directory `root` were the root; raises OSError."""
    try:
        return libc.open_in_root(root, path, flags | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            raise
    return Walk(root).go(
        path, flags
    )  # an old kernel, or one that gave up because somebody moves directories all the time


def make_inside(root: int, path: str, maker: Maker) -> None:
    """Make what is missing of a path, in whatever directories its links lead to inside of `root`; raises OSError."""
    found = Walk(root, maker).go(path, os.O_PATH)
    try:
        if stat.S_ISDIR(os.fstat(found).st_mode) != (maker.shape == "d"):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    finally:
        os.close(found)


def name_descriptor(descriptor: int) -> str:
    """A path to what is open, for calls that take no descriptor; no link is followed on it."""
    return f"/proc/self/fd/{descriptor}"


class Maker:
    """Makes a directory or, for the shape `f`, a file, and the directories above it."""

    def __init__(self, shape: str, mode: int = 0o755, *, is_exact: bool = False) -> None:
        self.shape = shape
        self._mode = mode
        self._is_exact = is_exact  # whether the umask says nothing about it

    def make(self, folder: int, name: str, *, is_last: bool) -> None:
        """Make one name in an open directory; that somebody was faster is fine."""
        before = os.umask(0) if self._is_exact else -1
        try:
            if is_last and self.shape == "f":
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
            else:
                os.mkdir(name, self._mode, dir_fd=folder)
        except FileExistsError:
            return
        finally:
            if self._is_exact:
                os.umask(before)


class Walk:
    """A way from a root down, on which every directory stays open: `..` leads to where it came from."""

    def __init__(self, root: int, maker: Maker | None = None) -> None:
        self._root = root
        self._maker = maker
        self._folders: list[int] = []

    def go(self, path: str, flags: int) -> int:
        """Open what is at the end; raises OSError."""
        left = split_path(path)[::-1]
        links = 0
        try:
            while left:
                name = left.pop()
                if name == "..":
                    self._rise(1)
                    continue
                target = self._read_link(name)
                if not target:
                    self._folders.append(self._open(name, flags if not left else OPEN_DIRECTORY, is_last=not left))
                    continue
                links += 1
                if links > MAXIMUM_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    self._rise(len(self._folders))
                left += split_path(target)[::-1]
            return self._folders.pop() if self._folders else os.open(".", flags | os.O_CLOEXEC, dir_fd=self._root)
        finally:
            self._rise(len(self._folders))

    @property
    def _here(self) -> int:
        return self._folders[-1] if self._folders else self._root

    def _rise(self, count: int) -> None:
        for _ in range(min(count, len(self._folders))):
            os.close(self._folders.pop())

    def _read_link(self, name: str) -> str:
        try:
            return os.readlink(name, dir_fd=self._here)
        except OSError:
            return ""

    def _open(self, name: str, flags: int, *, is_last: bool) -> int:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            found = os.open(name, flags, dir_fd=self._here)
        except FileNotFoundError:
            if self._maker is None:
                raise
            self._maker.make(self._here, name, is_last=is_last)
            found = os.open(name, flags, dir_fd=self._here)
        if stat.S_ISLNK(os.fstat(found).st_mode):  # put there just now
            os.close(found)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return found


class ContainerView(DirectoryView):
    """The tree of a container, whose root is the open directory `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name_descriptor(descriptor))
        self.descriptor = descriptor

    def close(self) -> None:
        """After the last look."""
        os.close(self.descriptor)

    def _open(self, path: str, flags: int) -> int:
        """A descriptor of what the name leads to inside the root; -1 when there is nothing."""
        try:
            return open_inside(self.descriptor, path, flags)
        except (OSError, ValueError):
            return -1

    def _mode(self, path: str) -> int:
        file = self._open(path, os.O_PATH)
        if file < 0:
            return 0
        try:
            return os.fstat(file).st_mode
        except OSError:  # a server of files, FUSE or another node, has lost it meanwhile
            return 0
        finally:
            os.close(file)

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        mode = self._mode(path)
        return _KINDS.get(stat.S_IFMT(mode), "c") if mode else ""

    def is_executable(self, path: str) -> bool:
        """Whether it is a file with an execute bit."""
        mode = self._mode(path)
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        if file < 0:
            return None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return None
            pieces = []
            step = found.st_size + 1  # as much memory as it takes: a megabyte for each of many small files takes longer
            while limit > 0 and (piece := os.pread(file, min(limit, step), offset)):
                pieces.append(piece)
                limit, offset = limit - len(piece), offset + len(piece)
            return b"".join(pieces)
        except OSError:
            return None
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; empty when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        if file < 0:
            return []
        try:
            return sorted(os.listdir(file))
        except OSError:
            return []
        finally:
            os.close(file)

    def read_link(self, path: str) -> str:
        """What the link says, its own name not followed; the empty string when it is none."""
        parent, _, name = path.rstrip("/").rpartition("/")
        file = self._open(parent or "/", OPEN_DIRECTORY)
        if file < 0:
            return ""
        try:
            return os.readlink(name, dir_fd=file)
        except (OSError, ValueError):
            return ""
        finally:
            os.close(file)
