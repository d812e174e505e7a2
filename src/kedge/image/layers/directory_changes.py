# SPDX-License-Identifier: BSD-3-Clause
"""What a program changed in a directory, as the tree of a layer: by comparison with how the directory was before.

For hosts where no overlay can be had. A file is the same if its inode and its change time (ctime) are: every write
moves that time, and no program can set it back. Contents are not read for the comparison.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.tree import Node, NodeKind
from kedge.image.layers.directory_tree import FolderOptions, FolderReading, FolderSource
from kedge.image.layers.layer_tree import strip_marks
from kedge.image.layers.owners import hand_down, take_named_notes
from kedge.image.layers.tar_writer import refuse_whiteout
from kedge.image.layers.upper_directory import UpperOptions, make_whiteout, settle_owner
from kedge.image.layers.whiteouts import OPAQUE_NAME, WHITEOUT_PREFIX
from kedge.system.tree_walk import ConfinedTree, Entries, join_names

_Seen = tuple[int, int, bool]  # inode, ctime in nanoseconds, whether it is a directory
_Names = dict[bytes, _Seen]
_TICK = 20_000_000  # nanoseconds after which the clock of change times has gone on for certain
_NO_NAMES: _Names = {}


@frozen
class DirectorySnapshot:
    """How a directory was: the names in each directory below it."""

    folders: dict[bytes, _Names]  # by path from the directory, without leading slash


def take_snapshot(folder: Path) -> DirectorySnapshot:
    """Remember how a directory is. Whatever changes after this call is seen, however soon."""
    tree = ConfinedTree(os.fsencode(folder))
    source = FolderSource()
    folders: dict[bytes, _Names] = {}
    newest = 0
    pending = [(b"", tree.find(b""))]
    try:
        while pending:
            path, known = pending.pop()
            names = folders[path] = {}
            for name, status in _list_unlocked(tree, path, known, source):
                is_folder = stat.S_ISDIR(status.st_mode)
                names[name] = (status.st_ino, status.st_ctime_ns, is_folder)
                newest = max(newest, status.st_ctime_ns)
                if is_folder:
                    pending.append((join_names(path, name), status))
    finally:
        relocked = source.close()
    for path, status in relocked.items():  # which has moved their times
        parent, _, name = path.rpartition(b"/")
        if name:
            folders[parent][name] = (status.st_ino, status.st_ctime_ns, True)
        newest = max(newest, status.st_ctime_ns)
    _wait_past(newest)
    return DirectorySnapshot(folders)


def _list_unlocked(tree: ConfinedTree, path: bytes, known: os.stat_result, source: FolderSource) -> Entries:
    """Return what is in a directory, which its mode may keep from its owner."""
    source.unlock(tree, path, known)
    with tree.open_folder(path, known) as folder:
        return folder.entries()


def _wait_past(newest: int) -> None:
    """Wait until a change would have a later time than all that was seen; that clock stands still for a few ms."""
    left = newest + _TICK - time.time_ns()
    if left > 0:
        time.sleep(min(left, 2 * _TICK) / 1e9)  # not for long where the clock of a server is ahead of ours


def read_changes(
    before: DirectorySnapshot, folder: Path, options: UpperOptions | None = None
) -> tuple[Node, FolderSource]:
    """The layer's tree, for `write_layer` with `holds_whiteouts`, and where its contents come from.

    The source has to be closed when the layer is written.
    """
    return _Comparison(before, ConfinedTree(os.fsencode(folder)), options or UpperOptions()).run()


class _Place:
    """A directory on the way; its node is made when something in it changed."""

    __slots__ = ("is_new", "name", "node", "notes", "parent", "path", "status")

    def __init__(self, parent: _Place | None, name: bytes, status: os.stat_result, *, is_new: bool = False) -> None:
        self.parent = parent
        self.name = name
        self.path: bytes = join_names(parent.path, name) if parent is not None else b""
        self.status = status
        self.is_new = is_new  # nothing of it was there before
        self.node: Node | None = None
        self.notes: dict[bytes, bytes] = {}  # of links and pipes in it


class _Comparison:
    def __init__(self, before: DirectorySnapshot, tree: ConfinedTree, options: UpperOptions) -> None:
        self._before = before
        self._tree = tree
        self._options = options
        self._reading = FolderReading(FolderOptions(all_root=options.all_root, unlocks=True, progress=options.progress))

    def run(self) -> tuple[Node, FolderSource]:
        root = _Place(None, b"", self._tree.find(b""))
        pending = [root]
        while pending:
            pending += self._compare(pending.pop())
        node = self._need(root)
        node.layer = 0 if self._options.keeps_root else -1
        return node, self._reading.source

    def _compare(self, place: _Place) -> list[_Place]:
        """Note what differs in one directory; the directories in it, to be compared next."""
        known = _NO_NAMES if place.is_new else self._before.folders.get(place.path, _NO_NAMES)
        gone = set(known)
        deeper: list[_Place] = []
        for name, status in _list_unlocked(self._tree, place.path, place.status, self._reading.source):
            if self._is_left_out(place, name):
                continue
            gone.discard(name)
            seen = known.get(name)
            is_folder = stat.S_ISDIR(status.st_mode)
            if is_folder:
                deeper.append(self._enter(place, name, status, seen))
            elif seen != (status.st_ino, status.st_ctime_ns, False):
                self._note_file(place, name, status, was_there=seen is not None)
        for name in gone:
            if not self._is_left_out(place, name):
                self._need(place).children[WHITEOUT_PREFIX + name] = make_whiteout()
        return deeper

    def _enter(self, place: _Place, name: bytes, status: os.stat_result, seen: _Seen | None) -> _Place:
        """A directory: the one that was there, maybe with another mode, or a new one, maybe in place of one."""
        was_folder = seen is not None and seen[2]
        is_new = not was_folder or seen is None or seen[0] != status.st_ino
        inner = _Place(place, name, status, is_new=is_new)
        if is_new or seen is None or seen[1] != status.st_ctime_ns:
            node = self._need(inner)
            if is_new and was_folder and self._before.folders.get(inner.path):
                node.children[OPAQUE_NAME] = make_whiteout()
        return inner

    def _note_file(self, place: _Place, name: bytes, status: os.stat_result, *, was_there: bool) -> None:
        path = join_names(place.path, name)
        if name.startswith(WHITEOUT_PREFIX):
            raise refuse_whiteout(path)
        with self._tree.open_folder(place.path) as folder:
            node = self._reading.find_node(folder, name, status)
        if node is not None:
            self._need(place)
            if name in place.notes:
                hand_down(node, place.notes[name])
            strip_marks(node)
            settle_owner(self._options, path, node, is_new=not was_there)
            self._need(place).children[name] = node
        elif was_there:
            self._need(place).children[WHITEOUT_PREFIX + name] = make_whiteout()

    def _need(self, place: _Place) -> Node:
        """The node of a directory, with those above it."""
        missing: list[_Place] = []
        upward: _Place | None = place
        while upward is not None and upward.node is None:
            missing.append(upward)
            upward = upward.parent
        for inner in reversed(missing):
            if inner.name.startswith(WHITEOUT_PREFIX):
                raise refuse_whiteout(inner.path)
            above = inner.parent.path if inner.parent is not None else b""
            with self._tree.open_folder(above) as folder:
                node = self._reading.make_node(folder, inner.name, inner.status, NodeKind.DIRECTORY)
            inner.notes = take_named_notes(node)
            strip_marks(node)
            settle_owner(self._options, inner.path, node, is_new=inner.is_new)
            inner.node = node
            if inner.parent is not None and inner.parent.node is not None:
                inner.parent.node.children[inner.name] = node
        assert place.node is not None
        return place.node

    def _is_left_out(self, place: _Place, name: bytes) -> bool:
        return bool(self._options.left_out) and join_names(place.path, name) in self._options.left_out
