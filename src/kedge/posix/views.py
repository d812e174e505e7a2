# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a tree, the host's or a container's, without ever following a link out of it.

The plan is a pure function of what views and facts say; tests give it a `TableView`.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class View(Protocol):
        """A tree that can be looked into; paths are absolute inside it, links are followed inside it."""

        def kind(self, path: str) -> str:
            """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
            ...

        def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
            """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
            ...

        def names(self, path: str) -> list[str]:
            """What is in a directory, sorted; empty when there is none or it cannot be read."""
            ...

        def resolve(self, path: str) -> str:
            """The path with all links followed inside the tree; what does not exist is kept as it is."""
            ...

        def is_executable(self, path: str) -> bool:
            """Whether it is a file with an execute bit."""
            ...

        def read_link(self, path: str) -> str:
            """What the link says, its own name not followed; the empty string when it is none."""
            ...

        def can_use(self, path: str) -> bool:
            """Whether we may read and write it; a device is not opened for that, but its control group is asked."""
            ...


MAXIMUM_LINKS = 40  # as the kernel
_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f"}


class DirectoryView:
    """The tree below a directory of this machine; `/` is the host itself."""

    def __init__(self, root: str, *, is_still: bool = False) -> None:
        self.root = root.rstrip("/")
        self._resolved: dict[str, str] | None = {} if is_still else None  # directories, where nothing changes meanwhile

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree; what does not exist is kept as it is."""
        names = split_path(path)
        if self._resolved is None or len(names) < 2:
            return self._follow(names[::-1], [], path)
        folder = "/".join(names[:-1])
        if folder not in self._resolved:
            self._resolved[folder] = self._follow(names[-2::-1], [], path)
        return self._follow(names[-1:], split_path(self._resolved[folder]), path)

    def _follow(self, left: list[str], done: list[str], path: str) -> str:
        """Go on from `done` with the names that are left, the next one last."""
        links = 0
        while left:
            name = left.pop()
            if name == "..":
                done[-1:] = []
                continue
            try:
                target = os.readlink("/".join([self.root, *done, name]))
            except OSError:
                done.append(name)
                continue
            links += 1
            if links > MAXIMUM_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done = []
            left += split_path(target)[::-1]
        return "/" + "/".join(done)

    def locate(self, path: str) -> str:
        """Where the path is on this machine, with no link left in it."""
        return self.root + self.resolve(path) if self.root else self.resolve(path)

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
        except (OSError, ValueError):
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
        except OSError:
            return None
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; empty when there is none or it cannot be read."""
        try:
            return sorted(os.listdir(self.locate(path)))
        except (OSError, ValueError):
            return []

    def is_executable(self, path: str) -> bool:
        """Whether it is a file with an execute bit."""
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
    """A tree written down: path to contents, None for a folder, `-> target` text for a link. For tests and dry runs."""

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
        """The path with all links followed inside the tree; what does not exist is kept as it is."""
        left = split_path(path)[::-1]
        done: list[str] = []
        for _ in range(1000):
            if not left:
                break
            name = left.pop()
            if name == "..":
                done[-1:] = []
                continue
            found = self.entries.get("/" + "/".join([*done, name]))
            if isinstance(found, str) and found.startswith("-> "):
                done = [] if found.startswith("-> /") else done
                left += split_path(found[3:])[::-1]
            else:
                done.append(name)
        return "/" + "/".join(done)

    def kind(self, path: str) -> str:
        """`d`, `f` or the empty string."""
        where = self.resolve(path)
        if where not in self.entries:
            return ""
        return "d" if self.entries[where] is None else "f"

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """The contents of a file."""
        found = self.entries.get(self.resolve(path))
        if found is None:
            return None
        return (found.encode() if isinstance(found, str) else found)[offset : offset + limit]

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted."""
        start = self.resolve(path).rstrip("/") + "/"
        return sorted({each[len(start) :].split("/")[0] for each in self.entries if each.startswith(start)} - {""})

    def is_executable(self, path: str) -> bool:
        """Whether the file was named executable, or is a script."""
        where = self.resolve(path)
        return where in self.executables or (self.read(where) or b"").startswith(b"#!")

    def read_link(self, path: str) -> str:
        """What the link says."""
        parent, _, name = path.rstrip("/").rpartition("/")
        found = self.entries.get(f"{self.resolve(parent).rstrip('/')}/{name}")
        return found[3:] if isinstance(found, str) and found.startswith("-> ") else ""

    def can_use(self, path: str) -> bool:
        """Whether it is there and was not named as refused."""
        return bool(self.kind(path)) and path not in self.refused


def split_path(path: str) -> list[str]:
    """The names in a path; `..` is one."""
    return [part for part in path.split("/") if part not in ("", ".")]
