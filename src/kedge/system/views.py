# SPDX-License-Identifier: BSD-3-Clause
"""Read a directory tree or an image by path, with symbolic links followed inside it only.

`follow_links` is the one follower, `View` the one protocol. A directory and a table for tests are here, an image in
`image/tree_view.py` and `image/formats/squashfs/view.py`, a tree with mounts over it in
`container/environment/bound_view.py`.
Two walks stay apart: `container/mount_operations.py`, for a tree that others change meanwhile, and the flattener's in
`image/layers/assemble.py`, which makes directories and refuses links that leave the image.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    class View(Protocol):
        """A tree of files; paths are absolute inside it, links are followed inside it."""

        def kind(self, path: str) -> str:
            """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
            ...

        def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
            """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
            ...

        def names(self, path: str) -> list[str]:
            """Return the names in a directory, sorted; empty when there is none or it cannot be read."""
            ...

        def resolve(self, path: str) -> str:
            """The path with all links followed inside the tree, as `follow_links` does."""
            ...

        def is_executable(self, path: str) -> bool:
            """Whether a path is a file with an execute bit."""
            ...

        def read_link(self, path: str) -> str:
            """What the link says, its own name not followed; the empty string when it is none."""
            ...

        def can_use(self, path: str) -> bool:
            """Whether we may read and write it; a device is not opened for that, but its control group is asked."""
            ...


MAXIMUM_LINKS = 40  # as the kernel
_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f"}
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # ENXIO: a socket


def split_path(path: str) -> list[str]:
    """The names in a path; `..` is one."""
    return [part for part in path.split("/") if part not in ("", ".")]


def follow_links(path: str, read_link: Callable[[str], str | None]) -> str:
    """The path with all links followed as if the tree's root were `/`; names that do not exist are kept.

    `read_link` gets an absolute path in which at most the last name is a link, and returns the link's target or None.
    `..` in the root stays there. Raises OSError (ELOOP) where the kernel would: after more than 40 links.
    """
    left = split_path(path)[::-1]
    done: list[str] = []
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            done[-1:] = []
            continue
        target = read_link("/" + "/".join([*done, name]))
        if target is None:
            done.append(name)
            continue
        links += 1
        if links > MAXIMUM_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done = []
        left += split_path(target)[::-1]
    return "/" + "/".join(done)


def read_last_link(path: str, read_link: Callable[[str], str | None]) -> str:
    """What the link at a path says, its own name not followed; the empty string when it is none."""
    parent, _, name = path.rstrip("/").rpartition("/")
    try:
        return read_link(f"{follow_links(parent, read_link).rstrip('/')}/{name}") or ""
    except OSError:
        return ""


class DirectoryView:
    """The tree below a directory of this host; `/` is the host itself.

    In a tree that `is_still` nothing changes while it is read, so links are read once. A view that `is_strict` raises
    OSError where something exists but cannot be read; without it that counts as missing.
    """

    def __init__(self, root: str, *, is_still: bool = False, is_strict: bool = False) -> None:
        self.root = root.rstrip("/")
        self._targets: dict[str, str | None] | None = {} if is_still else None
        self._is_strict = is_strict

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree, as `follow_links` does."""
        return follow_links(path, self._read_target if self._targets is None else self._recall_target)

    def _read_target(self, path: str) -> str | None:
        try:
            return os.readlink(self.root + path)
        except OSError:  # not a link, or missing
            return None

    def _recall_target(self, path: str) -> str | None:
        assert self._targets is not None
        if path not in self._targets:
            self._targets[path] = self._read_target(path)
        return self._targets[path]

    def _require_absent(self, problem: Exception) -> None:
        """Raise the problem again if it must not count as missing."""
        if self._is_strict and isinstance(problem, OSError) and problem.errno not in _ABSENT:
            raise problem

    def locate(self, path: str) -> str:
        """Where the path is on this host, with no link left in it."""
        return self.root + self.resolve(path)

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        try:
            return _KINDS.get(stat.S_IFMT(os.lstat(self.locate(path)).st_mode), "c")
        except (OSError, ValueError):
            return ""

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        try:
            # O_NONBLOCK: a pipe in the file's place must not make us wait; devices of an image cannot be opened (nodev)
            file = os.open(self.locate(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, ValueError) as problem:
            self._require_absent(problem)
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            if offset:
                os.lseek(file, offset, os.SEEK_SET)
            pieces, left = [], limit
            while left > 0 and (piece := os.read(file, left)):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)
        except OSError as problem:
            self._require_absent(problem)
            return None
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is none or it cannot be read."""
        try:
            return sorted(os.listdir(self.locate(path)))
        except (OSError, ValueError) as problem:
            self._require_absent(problem)
            return []

    def is_executable(self, path: str) -> bool:
        """Whether a path is a file with an execute bit."""
        try:
            mode = os.lstat(self.locate(path)).st_mode
        except (OSError, ValueError):
            return False
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def read_link(self, path: str) -> str:
        """What the link says, its own name not followed; the empty string when it is none."""
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            return os.readlink(f"{self.locate(parent)}/{name}")
        except (OSError, ValueError):
            return ""

    def can_use(self, path: str) -> bool:
        """Whether we may read and write it; a device is not opened for that, but its control group is asked."""
        try:
            return os.access(self.locate(path), os.R_OK | os.W_OK)
        except (OSError, ValueError):
            return False


class TableView:
    """A tree from a table: a path's contents, None for a directory, the text `-> TARGET` for a link. For tests."""

    def __init__(
        self,
        entries: Mapping[str, bytes | str | None],
        executables: tuple[str, ...] = (),
        refused: tuple[str, ...] = (),
    ) -> None:
        self.entries: dict[str, bytes | str | None] = {"/": None}
        self.executables = executables
        self.refused = refused
        for path, content in entries.items():
            parts = split_path(path)
            for depth in range(1, len(parts)):
                self.entries.setdefault("/" + "/".join(parts[:depth]), None)
            self.entries["/" + "/".join(parts)] = content

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree, as `follow_links` does."""
        return follow_links(path, self._read_target)

    def _read_target(self, path: str) -> str | None:
        content = self.entries.get(path)
        return content[3:] if isinstance(content, str) and content.startswith("-> ") else None

    def _find(self, path: str) -> str:
        """The resolved path; nothing has the empty one."""
        try:
            return self.resolve(path)
        except OSError:
            return ""

    def kind(self, path: str) -> str:
        """`d`, `f` or the empty string."""
        place = self._find(path)
        if place not in self.entries:
            return ""
        return "d" if self.entries[place] is None else "f"

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """The contents of a file."""
        content = self.entries.get(self._find(path))
        if content is None:
            return None
        return (content.encode() if isinstance(content, str) else content)[offset : offset + limit]

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        if self.kind(path) != "d":
            return []
        start = self._find(path).rstrip("/") + "/"
        return sorted({entry[len(start) :].split("/")[0] for entry in self.entries if entry.startswith(start)} - {""})

    def is_executable(self, path: str) -> bool:
        """Whether the file was named executable, or is a script."""
        place = self._find(path)
        return place in self.executables or (self.read(place) or b"").startswith(b"#!")

    def read_link(self, path: str) -> str:
        """What the link says."""
        return read_last_link(path, self._read_target)

    def can_use(self, path: str) -> bool:
        """Whether a path is there and was not named as refused."""
        return bool(self.kind(path)) and path not in self.refused
