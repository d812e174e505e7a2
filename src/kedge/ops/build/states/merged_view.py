# SPDX-License-Identifier: BSD-3-Clause
"""The files of a state: a base directory and the directories of layers above it, seen as one tree.

Nothing is mounted: whiteouts (devices 0:0) and opaque directories are read as the kernel's overlay reads them. Links
are followed inside the tree only. A state that is one directory is a view with one level.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kedge.layers.directory_tree import FolderOptions, FolderReading, list_entries, list_exactly
from kedge.layers.owners import OwnerTable, take_noted_owner
from kedge.model.tree import Node
from kedge.posix.files import explain
from kedge.posix.views import DirectoryView, follow_links, read_last_link

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque", "user.fuseoverlayfs.opaque")
_READABLE_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """One directory of a state; `owners` says whose its files are where that is not root."""

    folder: Path
    owners: OwnerTable = field(default_factory=OwnerTable)


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """What stands at a path: a file of this host, its status, and the level it is in."""

    path: bytes
    status: os.stat_result
    level: int

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory itself, not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)


_Directory = tuple[tuple[bytes, int], ...]  # the host's directories that make one of the view, topmost first


class MergedView:
    """Levels, lowest first, as one tree; a `posix.views.View`. Nothing may change in it while it is read.

    Every file is root's, whoever owns it on this host, unless the levels' owners say otherwise. Directories of kedge's
    own (`is_own`) are read also where modes forbid it; of the host's own files extended attributes are not read, and
    whoever exchanges a directory of theirs for a link meanwhile gets an error.
    """

    def __init__(self, levels: tuple[ViewLevel, ...], *, is_own: bool = True) -> None:
        self.levels = levels
        options = FolderOptions(all_root=True, unlocks=is_own, attributes=is_own, is_exact=not is_own)
        self._reading = FolderReading(options)
        self._is_exact = not is_own
        # `/` is the empty text, so that what is in it begins with one slash
        top_first = tuple((os.fsencode(level.folder).rstrip(b"/"), index) for index, level in enumerate(levels))[::-1]
        self._directories: dict[str, _Directory] = {"/": top_first}

    def close(self) -> None:
        """Give directories their modes back that were opened for reading."""
        self._reading.source.close()

    # -- paths whose parents have no links

    def find(self, path: str) -> ViewEntry | None:
        """What stands at a path, links not followed, neither on the way nor at its end."""
        parent, _, name = path.rstrip("/").rpartition("/")
        if not name:
            return self._find_root()
        if name in (".", ".."):
            return None
        return self._find_in(self._open(parent or "/"), os.fsencode(name))

    def entries(self, path: str) -> list[tuple[bytes, ViewEntry]]:
        """What is in a directory, in byte order; the path has no links."""
        merged: dict[bytes, ViewEntry] = {}
        for folder, level in self._open(path):
            for name, status in self._list(folder):
                merged.setdefault(name, ViewEntry(folder + b"/" + name, status, level))
        return [(name, merged[name]) for name in sorted(merged) if not self._is_whiteout(merged[name].status)]

    def _list(self, folder: bytes) -> list[tuple[bytes, os.stat_result]]:
        if self._is_exact:
            return list_exactly(folder or b"/")
        return [(entry.name, status) for entry, status in list_entries(folder or b"/")]

    def make_node(self, path: str, entry: ViewEntry) -> Node | None:
        """The file at a path as a node without children, its owner as recorded; None for sockets.

        All names of a file with several give the same node, whose content `FolderSource` reads.
        """
        node = self._reading.find_node(entry.path, entry.status)
        if node is None:
            return None
        has_owner = take_noted_owner(node)
        owners = self.levels[entry.level].owners
        if owners:
            owners.restore(os.fsencode(path.strip("/")), node, has_owner=has_owner)
        if node.xattrs:
            node.xattrs = tuple((name, value) for name, value in node.xattrs if not _is_ours(name))
        return node

    def _find_root(self) -> ViewEntry | None:
        directory = self._directories["/"]
        if not directory:
            return None
        path = directory[0][0] or b"/"
        return ViewEntry(path, os.stat(path), directory[0][1])  # noqa: PTH116

    def _find_in(self, directory: _Directory, name: bytes) -> ViewEntry | None:
        for folder, level in directory:
            try:
                status = os.lstat(folder + b"/" + name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as problem:
                raise explain(problem, os.fsdecode(folder + b"/" + name)) from problem
            return None if self._is_whiteout(status) else ViewEntry(folder + b"/" + name, status, level)
        return None

    def _open(self, path: str) -> _Directory:
        """The directories that make the one at `path`; none if there is no directory."""
        known = self._directories.get(path)
        if known is None:
            parent, _, name = path.rpartition("/")
            known = self._directories[path] = tuple(self._descend(self._open(parent or "/"), os.fsencode(name)))
        return known

    def _descend(self, directory: _Directory, name: bytes) -> Iterator[tuple[bytes, int]]:
        for folder, level in directory:
            below = folder + b"/" + name
            try:
                status = os.lstat(below)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                return
            yield below, level
            if self._is_layered and _is_opaque(below):
                return

    @property
    def _is_layered(self) -> bool:
        return len(self.levels) > 1

    def _is_whiteout(self, status: os.stat_result) -> bool:
        return self._is_layered and stat.S_ISCHR(status.st_mode) and not status.st_rdev

    # -- any path: links are followed

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree, as `follow_links` does."""
        return follow_links(path, self._read_target)

    def follow(self, path: str) -> ViewEntry | None:
        """What stands at a path, links followed; None where there is nothing or links go in a circle."""
        with contextlib.suppress(OSError):
            return self.find(self.resolve(path))
        return None

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        entry = self.follow(path)
        return "" if entry is None else _READABLE_KINDS.get(stat.S_IFMT(entry.status.st_mode), "c")

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        entry = self.follow(path)
        if entry is None:
            return None
        folder, _, name = os.fsdecode(entry.path).rpartition("/")
        return DirectoryView(folder).read(f"/{name}", limit, offset)

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; empty when there is none."""
        with contextlib.suppress(OSError):
            place = self.resolve(path)
            return sorted(os.fsdecode(name) for name, _ in self.entries(place))
        return []

    def is_executable(self, path: str) -> bool:
        """Whether it is a file with an execute bit."""
        entry = self.follow(path)
        return entry is not None and stat.S_ISREG(entry.status.st_mode) and bool(entry.status.st_mode & 0o111)

    def read_link(self, path: str) -> str:
        """What the link says, its own name not followed; the empty string when it is none."""
        return read_last_link(path, self._read_target)

    def can_use(self, path: str) -> bool:
        """Whether it exists: devices of an image are never used."""
        return bool(self.kind(path))

    def _read_target(self, path: str) -> str | None:
        entry = self.find(path)
        if entry is None or not stat.S_ISLNK(entry.status.st_mode):
            return None
        return os.fsdecode(os.readlink(entry.path))  # noqa: PTH115 - targets are bytes


def _is_ours(name: bytes) -> bool:
    """Whether an extended attribute says something to overlays or to kedge only."""
    return b"overlay" in name or name.startswith(b"user.kedge.")


def view_directory(folder: Path, owners: OwnerTable | None = None) -> MergedView:
    """A state that is one directory."""
    return MergedView((ViewLevel(folder, owners or OwnerTable()),))


def _is_opaque(folder: bytes) -> bool:
    for name in _OPAQUE:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name, follow_symlinks=False) == b"y":
                return True
    return False
