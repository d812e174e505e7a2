# SPDX-License-Identifier: BSD-3-Clause
"""A tree as a directory: contents are spooled while layers are read, the tree is built at the end, then published.

Everything happens in hidden directories beside the target, through descriptors that follow no link; the target
appears by one rename, whole or not at all. Modes are kept, setuid bits too, as in sandboxes that Apptainer makes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kedge.errors import HostileImage
from kedge.layers.member_names import show_name
from kedge.layers.privileges import Privileges, choose_privileges, make_special
from kedge.model.progress import Progress, Silent
from kedge.model.tree import Buffer, Node, NodeKind, walk
from kedge.posix.confined_paths import Descent, open_folder, remove_tree
from kedge.posix.files import explained, refuse_existing, remove_abandoned, temporary_beside

_PER_FOLDER = 4096  # spool files per directory: huge directories are slow on cluster file systems
_HOLE = 65536  # runs of zeros from this size on become holes
_LATEST = (1 << 63) - 1  # seconds that utimensat takes; a file system that ends earlier keeps the last it has


class SandboxSink:
    """A ContentSink whose `finish` makes the directory `target`; a context manager that removes unfinished work."""

    def __init__(self, target: Path, *, force: bool = False, progress: Progress | None = None) -> None:
        self._target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow a link at the target
        self._force = force
        self._progress = progress or Silent()
        self._count = 0
        self._spool_folder = -1
        refuse_existing(self._target, force=force)
        remove_abandoned(self._target)
        self._tree = temporary_beside(self._target)
        self._spool = temporary_beside(self._target)
        with explained(self._spool):
            self._spool.mkdir(mode=0o700)

    def __enter__(self) -> SandboxSink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def add(self, data: Buffer) -> object:
        """Spool a small file."""
        with explained(self._target):
            token, file = self._create()
            try:
                _write_all(file, data)
            finally:
                os.close(file)
        return token

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Spool a file; long runs of zeros become holes."""
        with explained(self._target):
            token, file = self._create()
        try:
            for chunk in chunks:
                with explained(self._target):
                    if len(chunk) >= _HOLE and not chunk[0] and not bytes(chunk).strip(b"\0"):
                        os.lseek(file, len(chunk), os.SEEK_CUR)
                    else:
                        _write_all(file, chunk)
            with explained(self._target):
                os.ftruncate(file, size)
        finally:
            os.close(file)
        return token

    def finish(self, root: Node) -> None:
        """Build the tree and publish it as the target; on any error nothing stays behind."""
        try:
            with explained(self._target):
                self._tree.mkdir(mode=0o700)
                builder = _TreeBuilder(self._spool, choose_privileges(self._progress), _count_names(root))
                builder.build(self._tree, root)
                remove_tree(self._spool)
                self._publish()
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove whatever is not published; idempotent."""
        if self._spool_folder >= 0:
            os.close(self._spool_folder)
            self._spool_folder = -1
        with explained(self._spool):
            remove_tree(self._spool)
            remove_tree(self._tree)

    def _create(self) -> tuple[int, int]:
        token = self._count
        self._count += 1
        if token % _PER_FOLDER == 0:
            if self._spool_folder >= 0:
                os.close(self._spool_folder)
            folder = self._spool / str(token // _PER_FOLDER)
            folder.mkdir(mode=0o700)
            self._spool_folder = open_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return token, os.open(str(token), flags, 0o600, dir_fd=self._spool_folder)

    def _publish(self) -> None:
        refuse_existing(self._target, force=self._force)
        if not os.path.lexists(self._target):
            self._tree.rename(self._target)
            return
        old = temporary_beside(self._target)
        self._target.rename(old)
        try:
            self._tree.rename(self._target)
        except OSError:
            old.rename(self._target)
            raise
        remove_tree(old)


@dataclass(slots=True)
class _Level:
    """A directory being filled."""

    name: bytes
    node: Node
    children: Iterator[tuple[bytes, Node]]


class _TreeBuilder:
    """Makes directories, moves spooled files into place and sets metadata, directories last: they may be read-only."""

    def __init__(self, spool: Path, privileges: Privileges, names: Counter[int]) -> None:
        self._spool = os.fsencode(spool)
        self._privileges = privileges
        self._names = names
        self._now = time.time_ns()  # the time of access: cleaners of /tmp go by it
        self._placed: dict[int, bytes] = {}  # files with several names: where the first is, in the spool

    def build(self, path: Path, root: Node) -> None:
        """Fill the empty directory `path`."""
        way = Descent(open_folder(path.parent))
        try:
            levels = [self._enter(way, os.fsencode(path.name), root)]
            while levels:
                self._step(levels, way)
        finally:
            way.close()

    def _enter(self, way: Descent, name: bytes, node: Node) -> _Level:
        way.enter(open_folder(name, at=way.folder))
        return _Level(name, node, iter(node.sorted_children()))

    def _step(self, levels: list[_Level], way: Descent) -> None:
        level = levels[-1]
        for name, node in level.children:
            refuse_way_out(name)
            if node.kind is NodeKind.DIRECTORY:
                os.mkdir(name, 0o700, dir_fd=way.folder)
                levels.append(self._enter(way, name, node))
                return
            self._make(way.folder, name, node)
        way.leave()
        self._set_metadata(way.folder, level.name, level.node)
        levels.pop()

    def _make(self, folder: int, name: bytes, node: Node) -> None:
        first = self._placed.get(id(node))
        if first is not None:
            os.link(first, name, dst_dir_fd=folder, follow_symlinks=False)
            return
        if node.kind is NodeKind.FILE:
            self._make_file(folder, name, node)
        elif node.kind is NodeKind.SYMLINK:
            os.symlink(node.target, name, dir_fd=folder)
        else:
            make_special(self._privileges, folder, name, node)
        self._set_metadata(folder, name, node)
        if self._names[id(node)] > 1:
            first = self._spool + b"/link%d" % len(self._placed)
            os.link(name, first, src_dir_fd=folder, follow_symlinks=False)
            self._placed[id(node)] = first

    def _make_file(self, folder: int, name: bytes, node: Node) -> None:
        if node.content is None:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder))
            return
        token = node.content
        assert isinstance(token, int)
        os.rename(b"%s/%d/%d" % (self._spool, token // _PER_FOLDER, token), name, dst_dir_fd=folder)

    def _set_metadata(self, folder: int, name: bytes, node: Node) -> None:
        self._privileges.set_owner(folder, name, node)
        if node.xattrs:
            self._privileges.set_xattrs(folder, name, node)
        if node.kind is not NodeKind.SYMLINK:
            os.chmod(name, node.mode, dir_fd=folder)
        seconds = max(-_LATEST, min(node.mtime, _LATEST))
        moment = seconds * 10**9 + node.nanoseconds
        os.utime(name, ns=(self._now, moment), dir_fd=folder, follow_symlinks=False)


def refuse_way_out(name: bytes) -> None:
    """Raise for a name that is no component: trees may come from images read elsewhere, whatever they claim."""
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise HostileImage(
            f"the image has a file named '{show_name(name)}', which is not a valid file name",
            context={"name": show_name(name)},
        )


def _count_names(root: Node) -> Counter[int]:
    return Counter(id(node) for _, node in walk(root) if node.kind is not NodeKind.DIRECTORY)


def _write_all(file: int, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
