# SPDX-License-Identifier: BSD-3-Clause
"""The files of a state: a base directory and the directories of layers above it, seen as one tree.

Nothing is mounted: whiteouts (devices 0:0) and opaque directories are read as the kernel's overlay reads them. Links
are followed inside the tree only. A state that is one directory is a view with one level.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.tree import Node
from kedge.errors import KedgeError
from kedge.image.layers.directory_tree import FolderOptions, FolderReading
from kedge.image.layers.owners import OwnerTable, take_noted_mode, take_noted_owner
from kedge.system.files import explain
from kedge.system.tree_walk import ConfinedTree
from kedge.system.views import follow_links, read_last_link

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque", "user.fuseoverlayfs.opaque")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # ELOOP: a link where a directory was
_READABLE_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l"}


@dataclass(frozen=True, slots=True)
class ViewLevel:
    """One directory of a state; `owners` says whose its files are where that is not root."""

    folder: Path
    owners: OwnerTable = field(default_factory=OwnerTable)


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """What stands at a path: a file below a directory of this host, its status, and the level it is in."""

    tree: ConfinedTree
    inner: bytes  # its path in there
    status: os.stat_result
    level: int

    @property
    def path(self) -> str:
        """The path on this host."""
        return self.tree.show(self.inner)

    @property
    def is_directory(self) -> bool:
        """Whether the entry is a directory itself, not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)


_Directory = tuple[int, ...]  # the levels whose directories make one of the view, topmost first


class MergedView:
    """Levels, lowest first, as one tree; a `posix.views.View`.

    Levels are read by the walker (`system/tree_walk.py`): who changes a directory of the host meanwhile makes kedge
    fail or see the one or the other, and never leads it out of that directory.

    Every file is root's, whoever owns it on this host, unless the levels' owners say otherwise. Directories of kedge's
    own (`is_own`) are read also where modes forbid it; of the host's own files extended attributes are not read.
    """

    def __init__(self, levels: tuple[ViewLevel, ...], *, is_own: bool = True) -> None:
        self.levels = levels
        self._is_own = is_own
        self._reading = FolderReading(FolderOptions(all_root=True, unlocks=is_own, attributes=is_own))
        self._trees = tuple(ConfinedTree(os.fsencode(level.folder)) for level in levels)
        self._directories: dict[str, _Directory] = {"/": tuple(range(len(levels)))[::-1]}

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
        return self._find_in(self._open(parent or "/"), _name_inside(path))

    def entries(self, path: str) -> list[tuple[bytes, ViewEntry]]:
        """Return the entries of a directory, in byte order; the path has no links."""
        merged: dict[bytes, ViewEntry] = {}
        for level in self._open(path):
            tree = self._trees[level]
            with tree.open_folder(_name_inside(path)) as folder:
                for name, status in folder.entries():
                    merged.setdefault(name, ViewEntry(tree, folder.join(name), status, level))
        return [(name, merged[name]) for name in sorted(merged) if not self._is_whiteout(merged[name].status)]

    def make_node(self, path: str, entry: ViewEntry) -> Node | None:
        """The file at a path as a node without children, its owner as recorded; None for sockets.

        All names of a file with several give the same node, whose content `FolderSource` reads.
        """
        above, _, name = entry.inner.rpartition(b"/")
        with entry.tree.open_folder(above) as folder:
            node = self._reading.find_node(folder, name, entry.status)
        if node is None:
            return None
        mode = take_noted_mode(node)
        has_owner = take_noted_owner(node)
        owners = self.levels[entry.level].owners
        if owners:
            owners.restore(os.fsencode(path.strip("/")), node, has_owner=has_owner)
        node.mode = node.mode if mode is None else mode
        if node.xattrs:
            node.xattrs = tuple((name, value) for name, value in node.xattrs if not _is_ours(name))
        return node

    def _find_root(self) -> ViewEntry | None:
        level = len(self.levels) - 1
        return ViewEntry(self._trees[level], b"", self._trees[level].find(b""), level) if self.levels else None

    def _find_in(self, directory: _Directory, inner: bytes) -> ViewEntry | None:
        for level in directory:
            tree = self._trees[level]
            try:
                status = tree.find(inner)
            except OSError as problem:
                if problem.errno in _ABSENT:
                    continue
                raise explain(problem, tree.show(inner)) from problem
            return None if self._is_whiteout(status) else ViewEntry(tree, inner, status, level)
        return None

    def _open(self, path: str) -> _Directory:
        """The levels whose directories make the one at `path`; none if there is no directory."""
        known = self._directories.get(path)
        if known is None:
            parent = path.rpartition("/")[0]
            known = self._directories[path] = tuple(self._descend(self._open(parent or "/"), _name_inside(path)))
        return known

    def _descend(self, directory: _Directory, inner: bytes) -> Iterator[int]:
        for level in directory:
            tree = self._trees[level]
            try:
                status = tree.find(inner)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                return
            if self._is_own:
                self._reading.source.unlock(tree, inner, status)
            yield level
            if self._is_layered and _is_opaque(tree, inner):
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
        return entry.tree.read(entry.inner, limit, offset)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is none."""
        with contextlib.suppress(OSError):
            place = self.resolve(path)
            return sorted(os.fsdecode(name) for name, _ in self.entries(place))
        return []

    def is_executable(self, path: str) -> bool:
        """Whether a path is a file with an execute bit."""
        entry = self.follow(path)
        return entry is not None and stat.S_ISREG(entry.status.st_mode) and bool(entry.status.st_mode & 0o111)

    def read_link(self, path: str) -> str:
        """What the link says, its own name not followed; the empty string when it is none."""
        return read_last_link(path, self._read_target)

    def can_use(self, path: str) -> bool:
        """Whether a path exists: devices of an image are never used."""
        return bool(self.kind(path))

    def _read_target(self, path: str) -> str | None:
        entry = self.find(path)
        if entry is None or not stat.S_ISLNK(entry.status.st_mode):
            return None
        return os.fsdecode(entry.tree.read_link(entry.inner))


def _is_ours(name: bytes) -> bool:
    """Whether an extended attribute says something to overlays or to kedge only."""
    return b"overlay" in name or name.startswith(b"user.kedge.")


def view_directory(folder: Path, owners: OwnerTable | None = None) -> MergedView:
    """A state that is one directory."""
    return MergedView((ViewLevel(folder, owners or OwnerTable()),))


def _is_opaque(tree: ConfinedTree, inner: bytes) -> bool:
    with contextlib.suppress(KedgeError), tree.open_folder(inner) as folder:
        place = folder.name(b"")
        for name in _OPAQUE:
            with contextlib.suppress(OSError):
                if os.getxattr(place, name) == b"y":
                    return True
    return False


def _name_inside(path: str) -> bytes:
    return os.fsencode(path.strip("/"))
