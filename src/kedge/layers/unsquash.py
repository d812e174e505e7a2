# SPDX-License-Identifier: BSD-3-Clause
"""Unpacks a SquashFS tree straight to its final place: every file is written once, where it stays.

For images that are run from, not edited: the owner can read everything, no file is setuid, times are kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kedge.layers.privileges import Privileges, choose_privileges
from kedge.layers.sandbox import refuse_way_out
from kedge.model.progress import Progress
from kedge.model.tree import ContentSource, Kind, Node, walk
from kedge.posix.beneath import open_folder

_BLOCK = 4096
_HOLE = 65536  # runs of zeros from this size on become holes
_LATEST = (1 << 62) // 10**9  # seconds that utimensat takes as nanoseconds
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_usable(root: Node) -> None:
    """Give a tree the modes it has on a node: readable for its owner, so that nothing in it is out of reach."""
    root.mode = usable_mode(root)
    for _, node in walk(root):
        node.mode = usable_mode(node)


def usable_mode(node: Node) -> int:
    """The mode of a file or folder on a node; setuid and setgid bits would mean the wrong user there."""
    return node.mode & 0o1777 | (0o500 if node.kind is Kind.DIRECTORY else 0o400)


def measure_tree(root: Node) -> int:
    """About how many bytes the unpacked tree takes on a disk."""
    seen: set[int] = set()
    total = 0
    for _, node in walk(root):
        if id(node) not in seen:
            seen.add(id(node))
            total += (node.size + _BLOCK - 1) // _BLOCK * _BLOCK if node.kind is Kind.FILE else _BLOCK >> 2
    return total


class TreeExtractor:
    """Writes a tree that was read from an image into the new folder `target`; `advance` counts the files' bytes."""

    def __init__(self, source: ContentSource, progress: Progress, advance: Callable[[int], None]) -> None:
        self._source = source
        self._advance = advance
        self._privileges: Privileges = choose_privileges(progress)
        self._is_root = os.geteuid() == 0
        self._first_names: dict[int, bytes] = {}  # of files with several names: where the first is
        self._now = time.time_ns()  # the time of access: cleaners of /tmp go by it
        self._root = b""

    def extract(self, root: Node, target: Path) -> None:
        """Make `target` and everything in it; a caller removes what an error leaves."""
        self._root = os.fsencode(target)
        before = os.umask(0)  # files are made with their final mode
        try:
            target.mkdir(0o700)
            folder = open_folder(target)
            try:
                self._fill(folder, b"", root)
            finally:
                os.close(folder)
        finally:
            os.umask(before)

    def _fill(self, folder: int, path: bytes, node: Node) -> None:
        """Without recursion: a hostile tree may be deeper than Python's stack. Descriptors are one per level."""
        levels: list[tuple[int, bytes, Node, Iterator[tuple[bytes, Node]]]]
        levels = [(os.dup(folder), path, node, iter(node.sorted_children()))]
        try:
            while levels:
                current, where, owner, children = levels[-1]
                for name, child in children:
                    refuse_way_out(name)
                    if child.kind is Kind.DIRECTORY:
                        os.mkdir(name, 0o700, dir_fd=current)
                        deeper = open_folder(name, at=current)
                        levels.append((deeper, where + b"/" + name, child, iter(child.sorted_children())))
                        break
                    self._make(current, where, name, child)
                else:
                    self._finish_folder(current, owner)
                    os.close(current)
                    levels.pop()
        finally:
            for level in levels:
                os.close(level[0])

    def _make(self, folder: int, where: bytes, name: bytes, node: Node) -> None:
        first = self._first_names.get(id(node))
        if first is not None:
            os.link(first, name, dst_dir_fd=folder, follow_symlinks=False)
            return
        if node.kind is Kind.FILE:
            self._make_file(folder, name, node)
        else:
            self._make_special(folder, name, node)
        self._first_names[id(node)] = b"%s%s/%s" % (self._root, where, name)

    def _make_file(self, folder: int, name: bytes, node: Node) -> None:
        mode = usable_mode(node)
        file = os.open(name, _CREATE, mode, dir_fd=folder)
        try:
            if node.size:
                self._write(file, node)
            if self._is_root or node.xattrs:
                self._set_owner(folder, name, node)
                os.fchmod(file, mode)
            os.utime(file, ns=(self._now, _as_nanoseconds(node.mtime)))
        finally:
            os.close(file)

    def _write(self, file: int, node: Node) -> None:
        ends_in_hole = False
        for chunk in self._source.chunks(node):
            ends_in_hole = len(chunk) >= _HOLE and not chunk[0] and not chunk.strip(b"\0")
            if ends_in_hole:
                os.lseek(file, len(chunk), os.SEEK_CUR)
            else:
                written = os.write(file, chunk)
                while written < len(chunk):
                    written += os.write(file, chunk[written:])
        if ends_in_hole:
            os.ftruncate(file, node.size)
        self._advance(node.size)

    def _make_special(self, folder: int, name: bytes, node: Node) -> None:
        if node.kind is Kind.SYMLINK:
            os.symlink(node.target, name, dir_fd=folder)
        elif node.kind is Kind.FIFO:
            os.mkfifo(name, 0o600, dir_fd=folder)
        elif node.kind is Kind.SOCKET:
            os.mknod(name, 0o140600, dir_fd=folder)
        else:
            self._privileges.make_device(folder, name, node)
        self._set_owner(folder, name, node)
        if node.kind is not Kind.SYMLINK:
            os.chmod(name, usable_mode(node), dir_fd=folder)
        os.utime(name, ns=(self._now, _as_nanoseconds(node.mtime)), dir_fd=folder, follow_symlinks=False)

    def _set_owner(self, folder: int, name: bytes, node: Node) -> None:
        self._privileges.set_owner(folder, name, node)
        if node.xattrs:
            self._privileges.set_xattrs(folder, name, node)

    def _finish_folder(self, folder: int, node: Node) -> None:
        """Last: a folder may be read-only, and making files in it changes its time."""
        if self._is_root or node.xattrs:
            self._set_owner(folder, b".", node)
        os.fchmod(folder, usable_mode(node))
        os.utime(folder, ns=(self._now, _as_nanoseconds(node.mtime)))


def _as_nanoseconds(seconds: int) -> int:
    return max(-_LATEST, min(seconds, _LATEST)) * 10**9
