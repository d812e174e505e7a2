# SPDX-License-Identifier: BSD-3-Clause
"""A tree as a directory: contents are spooled while layers are read, the tree is built at the end, then published.

Everything happens in hidden directories beside the target, through descriptors that follow no link; the target
appears by one rename, whole or not at all. Modes are kept, setuid bits too, as in sandboxes that Apptainer makes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.base.progress import Progress, Silent
from kedge.base.tree import Node, NodeKind, walk
from kedge.errors import HostileImage
from kedge.image.layers.content_spool import ContentSpool, name_token
from kedge.image.layers.member_names import show_name
from kedge.image.layers.privileges import Privileges, choose_privileges, make_special
from kedge.system.confined_paths import Descent, open_folder, remove_tree
from kedge.system.files import explained, refuse_existing, remove_abandoned, temporary_beside

_LATEST = (1 << 63) - 1  # seconds that utimensat takes; a file system that ends earlier keeps the last it has


class SandboxSink(ContentSpool):
    """A ContentSink whose `finish` makes the directory `target`; a context manager that removes unfinished work."""

    def __init__(
        self,
        target: Path,
        *,
        force: bool = False,
        progress: Progress | None = None,
        privileges: Privileges | None = None,
        writers: int = 0,
    ) -> None:
        self._target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow a link at the target
        self._force = force
        self._privileges = privileges or choose_privileges(progress or Silent())
        refuse_existing(self._target, force=force)
        remove_abandoned(self._target)
        self._tree = temporary_beside(self._target)
        super().__init__(self._target, writers=writers)

    def __enter__(self) -> SandboxSink:
        return self

    def finish(self, root: Node) -> None:
        """Build the tree and publish it as the target; on any error nothing stays behind."""
        try:
            self.settle()
            with explained(self._target):
                self._tree.mkdir(mode=0o700)
                TreeBuilder(self.place, self._privileges, root).build(self._tree, root)
                self.close()
                self._publish()
        finally:
            self.abort()

    def abort(self) -> None:
        """Remove whatever is not published; idempotent."""
        self.close()
        with explained(self._tree):
            remove_tree(self._tree)

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


class TreeBuilder:
    """Makes directories, moves spooled files into place and sets metadata, directories last: they may be read-only."""

    def __init__(self, spool: Path, privileges: Privileges, root: Node) -> None:
        self._spool = os.fsencode(spool)
        self._privileges = privileges
        self._names = _count_names(root)
        self._now = time.time_ns()  # the time of access: cleaners of /tmp go by it
        self._placed: dict[int, bytes] = {}  # files with several names: where the first is, in the spool

    def build(self, path: Path, root: Node) -> None:
        """Fill the directory `path`."""
        way = Descent(open_folder(path.parent))
        try:
            levels = [self._enter(way, os.fsencode(path.name), root)]
            while levels:
                self._step(levels, way)
        finally:
            way.close()

    def _enter(self, way: Descent, name: bytes, node: Node) -> _Level:
        way.enter(self.open_folder(way.folder, name, node))
        return _Level(name, node, iter(node.sorted_children()))

    def _step(self, levels: list[_Level], way: Descent) -> None:
        level = levels[-1]
        for name, node in level.children:
            refuse_way_out(name)
            if node.kind is NodeKind.DIRECTORY:
                self.make_folder(way.folder, name, node)
                levels.append(self._enter(way, name, node))
                return
            self.make_file(way.folder, name, node)
        way.leave()
        self.set_metadata(way.folder, level.name, level.node)
        levels.pop()

    def open_folder(self, folder: int, name: bytes, node: Node) -> int:  # noqa: ARG002 - who builds above others asks
        """Enter a directory."""
        return open_folder(name, at=folder)

    def make_folder(self, folder: int, name: bytes, node: Node) -> None:  # noqa: ARG002 - who builds above others asks
        """Make an empty directory."""
        os.mkdir(name, 0o700, dir_fd=folder)

    def make_file(self, folder: int, name: bytes, node: Node) -> None:
        """Make what is no directory, with its metadata."""
        first = self._placed.get(id(node))
        if first is not None:
            os.link(first, name, dst_dir_fd=folder, follow_symlinks=False)
            return
        if node.kind is NodeKind.FILE:
            self._place_file(folder, name, node)
        elif node.kind is NodeKind.SYMLINK:
            os.symlink(node.target, name, dir_fd=folder)
        else:
            make_special(self._privileges, folder, name, node)
        self.set_metadata(folder, name, node)
        if self._names[id(node)] > 1:
            first = self._spool + b"/link%d" % len(self._placed)
            os.link(name, first, src_dir_fd=folder, follow_symlinks=False)
            self._placed[id(node)] = first

    def _place_file(self, folder: int, name: bytes, node: Node) -> None:
        if node.content is None:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder))
            return
        token = node.content
        assert isinstance(token, int)
        os.rename(b"%s/%s" % (self._spool, name_token(token)), name, dst_dir_fd=folder)

    def set_metadata(self, folder: int, name: bytes, node: Node) -> None:
        """Give a file its owner, attributes, mode and time."""
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
