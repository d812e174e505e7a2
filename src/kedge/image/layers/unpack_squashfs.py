# SPDX-License-Identifier: BSD-3-Clause
"""Unpacks a SquashFS tree straight to its final place, by several processes: every file is written once.

For images that are run from, not edited: the owner can read everything, no file is setuid, times are kept.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from kedge.base.progress import Progress
from kedge.base.tree import Node, NodeKind, walk
from kedge.image.layers.privileges import choose_privileges, make_mode_usable, make_special
from kedge.image.layers.sandbox import refuse_way_out
from kedge.system.confined_paths import open_folder
from kedge.system.forked_workers import share_work

_BLOCK = 4096
_HOLE = 65536  # runs of zeros from this size on become holes
_BATCH_FILES = 200
_BATCH_BYTES = 16 << 20
_STRETCH = 64 << 20  # what one process writes of a large file before another may go on; a multiple of every block size
_LATEST = (1 << 62) // 10**9  # seconds that utimensat takes as nanoseconds
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class _StretchSource(Protocol):
    """Gives the bytes of regular files back, also from the middle."""

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The content of a regular file in order."""
        ...

    def stretch(self, node: Node, start: int, length: int) -> Iterator[bytes]:
        """The content from `start`, a multiple of the block size, on."""
        ...


def make_usable(root: Node) -> None:
    """Give a tree the modes it has on a node: readable for its owner, so that nothing in it is out of reach."""
    root.mode = usable_mode(root)
    for _, node in walk(root):
        node.mode = usable_mode(node)


def usable_mode(node: Node) -> int:
    """The mode of a file or directory on a node; setuid and setgid bits would mean the wrong user there."""
    return make_mode_usable(node.kind, node.mode)


def measure_tree(root: Node) -> int:
    """About how many bytes the unpacked tree takes on a disk."""
    seen: set[int] = set()
    total = 0
    for _, node in walk(root):
        if id(node) not in seen:
            seen.add(id(node))
            total += (node.size + _BLOCK - 1) // _BLOCK * _BLOCK if node.kind is NodeKind.FILE else _BLOCK >> 2
    return total


class _Batch:
    """Files of one directory that one process makes; or a stretch of one large file."""

    __slots__ = ("folder", "length", "nodes", "size", "start")

    def __init__(self, folder: bytes, start: int = -1, length: int = 0) -> None:
        self.folder = folder
        self.nodes: list[tuple[bytes, Node]] = []
        self.size = 0
        self.start = start  # -1: whole files
        self.length = length


class _Plan:
    """A tree in the order it is made: directories, contents in batches, then what needs the rest to be there."""

    def __init__(self, root: Node) -> None:
        self.folders: list[tuple[bytes, Node]] = [(b"", root)]
        self.batches: list[_Batch] = []
        self.specials: list[tuple[bytes, bytes, Node]] = []  # devices, pipes, sockets
        self.unfinished: list[tuple[bytes, bytes, Node]] = []  # files whose metadata is set when all of it is written
        self.links: list[tuple[bytes, bytes, bytes, bytes]] = []  # directory and name of the first name, and of another
        self._first: dict[int, tuple[bytes, bytes]] = {}
        stack = [(b"", root)]
        while stack:
            path, folder = stack.pop()
            deeper = self._take_folder(path, folder)
            self.folders += deeper
            stack += reversed(deeper)

    def _take_folder(self, path: bytes, folder: Node) -> list[tuple[bytes, Node]]:
        deeper: list[tuple[bytes, Node]] = []
        batch = _Batch(path)
        for name, node in folder.sorted_children():
            refuse_way_out(name)
            if node.kind is NodeKind.DIRECTORY:
                deeper.append((b"%s/%s" % (path, name), node))
            elif id(node) in self._first:
                self.links.append((*self._first[id(node)], path, name))
            else:
                self._first[id(node)] = (path, name)
                batch = self._take_file(batch, path, name, node)
        if batch.nodes:
            self.batches.append(batch)
        return deeper

    def _take_file(self, batch: _Batch, path: bytes, name: bytes, node: Node) -> _Batch:
        if node.kind not in (NodeKind.FILE, NodeKind.SYMLINK):
            self.specials.append((path, name, node))
            return batch
        if node.xattrs or node.size >= 2 * _STRETCH:
            self.unfinished.append((path, name, node))
        if node.size >= 2 * _STRETCH:
            for start in range(0, node.size, _STRETCH):
                stretch = _Batch(path, start, min(_STRETCH, node.size - start))
                stretch.nodes.append((name, node))
                self.batches.append(stretch)
            return batch
        batch.nodes.append((name, node))
        batch.size += node.size
        if len(batch.nodes) < _BATCH_FILES and batch.size < _BATCH_BYTES:
            return batch
        self.batches.append(batch)
        return _Batch(path)


class TreeExtractor:
    """Writes a tree that was read from an image into a new directory; `advance` counts the files' bytes."""

    def __init__(
        self, source: _StretchSource, progress: Progress, advance: Callable[[int], None], workers: int = 1
    ) -> None:
        self._source = source
        self._advance = advance
        self._workers = workers
        self._privileges = choose_privileges(progress)
        self._owner = (os.geteuid(), os.getegid())
        self._now = time.time_ns()  # the time of access: cleaners of /tmp go by it
        self._root = b""
        self._plan = _Plan(Node(NodeKind.DIRECTORY))

    def extract(self, root: Node, target: Path) -> None:
        """Make `target` and everything in it; the caller removes what an error leaves."""
        self._root = os.fsencode(target)
        self._plan = plan = _Plan(root)
        before = os.umask(0)  # files are made with their final mode
        try:
            for path, _ in plan.folders:
                self._make_folder(path)
            share_work(len(plan.batches), self._workers, self._make_batch, self._advance)
            for path, name, node in plan.specials:
                with _Folder(self._root, path) as folder:
                    make_special(self._privileges, folder, name, node)
                    self._set_metadata(folder, name, node)
            for path, name, node in plan.unfinished:
                with _Folder(self._root, path) as folder:
                    self._set_metadata(folder, name, node)
            for first, old, path, name in plan.links:
                with _Folder(self._root, first) as source, _Folder(self._root, path) as folder:
                    os.link(old, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
            for path, node in reversed(plan.folders):  # last and deepest first: they may be read-only
                self._finish_folder(path, node)
        finally:
            os.umask(before)

    def _make_folder(self, path: bytes) -> None:
        try:
            os.mkdir(self._root + path, 0o700)  # noqa: PTH102 - a name is bytes
        except OSError as problem:
            if problem.errno != errno.ENAMETOOLONG:
                raise
            parent, _, name = path.rpartition(b"/")
            with _Folder(self._root, parent) as folder:
                os.mkdir(name, 0o700, dir_fd=folder)

    def _make_batch(self, number: int) -> int:
        """In a process of its own."""
        batch = self._plan.batches[number]
        with _Folder(self._root, batch.folder) as folder:
            if batch.start >= 0:
                name, node = batch.nodes[0]
                self._make_stretch(folder, name, node, batch)
                return batch.length
            for name, node in batch.nodes:
                if node.kind is NodeKind.FILE:
                    self._make_file(folder, name, node)
                else:
                    os.symlink(node.target, name, dir_fd=folder)
                    self._give_away(folder, name, node)
                    self._set_time(name, node, folder)
        return batch.size

    def _make_file(self, folder: int, name: bytes, node: Node) -> None:
        mode = usable_mode(node) | (0o200 if node.xattrs else 0)  # what its owner may not write takes no attributes
        file = os.open(name, _CREATE | os.O_EXCL, mode, dir_fd=folder)
        try:
            if node.size:
                self._write(file, self._source.chunks(node), node.size)
            if self._give_away(folder, name, node):
                os.fchmod(file, mode)
            os.utime(file, ns=(self._now, _as_nanoseconds(node.mtime)))
        finally:
            os.close(file)

    def _make_stretch(self, folder: int, name: bytes, node: Node, batch: _Batch) -> None:
        file = os.open(name, _CREATE, usable_mode(node) | 0o200, dir_fd=folder)
        try:
            os.lseek(file, batch.start, os.SEEK_SET)
            self._write(file, self._source.stretch(node, batch.start, batch.length), 0)
            if batch.start + batch.length == node.size and os.fstat(file).st_size < node.size:
                os.ftruncate(file, node.size)
        finally:
            os.close(file)

    def _write(self, file: int, chunks: Iterator[bytes], size: int) -> None:
        ends_in_hole = False
        for chunk in chunks:
            ends_in_hole = len(chunk) >= _HOLE and not chunk[0] and not chunk.strip(b"\0")
            if ends_in_hole:
                os.lseek(file, len(chunk), os.SEEK_CUR)
            else:
                written = os.write(file, chunk)
                while written < len(chunk):
                    written += os.write(file, chunk[written:])
        if ends_in_hole and size:
            os.ftruncate(file, size)

    def _give_away(self, folder: int, name: bytes, node: Node) -> bool:
        """As root, give the file to its owner; an id that is not mapped in this user namespace is left out."""
        if self._owner[0] or (node.uid, node.gid) == self._owner:
            return False
        try:
            os.chown(name, node.uid, node.gid, dir_fd=folder, follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in (errno.EPERM, errno.EINVAL):
                raise
        return True

    def _set_metadata(self, folder: int, name: bytes, node: Node) -> None:
        self._give_away(folder, name, node)
        if node.xattrs:
            self._privileges.set_xattrs(folder, name, node)
        if node.kind is not NodeKind.SYMLINK:
            os.chmod(name, usable_mode(node), dir_fd=folder)
        self._set_time(name, node, folder)

    def _set_time(self, name: bytes, node: Node, folder: int) -> None:
        times = (self._now, _as_nanoseconds(node.mtime))
        os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)

    def _finish_folder(self, path: bytes, node: Node) -> None:
        with _Folder(self._root, path) as folder:
            if self._owner[0] == 0 or node.xattrs:
                self._set_metadata(folder, b".", node)
                return
            os.fchmod(folder, usable_mode(node))
            os.utime(folder, ns=(self._now, _as_nanoseconds(node.mtime)))


class _Folder:
    """A directory of the tree, opened; also where its path is longer than the kernel takes at once."""

    def __init__(self, root: bytes, path: bytes) -> None:
        try:
            self._folder = open_folder(root + path)
        except OSError as problem:
            if problem.errno != errno.ENAMETOOLONG:
                raise
            self._folder = open_folder(root)
            for part in path.split(b"/")[1:]:
                above = self._folder
                try:
                    self._folder = open_folder(part, at=above)
                finally:
                    os.close(above)

    def __enter__(self) -> int:
        return self._folder

    def __exit__(self, *problem: object) -> None:
        os.close(self._folder)


def _as_nanoseconds(seconds: int) -> int:
    return max(-_LATEST, min(seconds, _LATEST)) * 10**9
