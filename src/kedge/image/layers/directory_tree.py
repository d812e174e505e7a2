# SPDX-License-Identifier: BSD-3-Clause
"""A directory on disk as a tree: names and metadata are read at once, contents when a writer asks for them.

Others may change the directory meanwhile: the walker (`system/tree_walk.py`) leaves it by no link. A file is recognised
again by device, inode, size and time, so one that changed, or a link put in its way, is an error and never a mixture.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kedge.base.progress import Progress, Silent
from kedge.base.tree import Node, NodeKind, Xattrs
from kedge.errors import FileProblem, KedgeError
from kedge.system.files import explain, explained
from kedge.system.tree_walk import ConfinedFolder, ConfinedTree, explain_change

_KINDS = {
    stat.S_IFDIR: NodeKind.DIRECTORY,
    stat.S_IFREG: NodeKind.FILE,
    stat.S_IFLNK: NodeKind.SYMLINK,
    stat.S_IFBLK: NodeKind.BLOCK_DEVICE,
    stat.S_IFCHR: NodeKind.CHARACTER_DEVICE,
    stat.S_IFIFO: NodeKind.FIFO,
}
_STORABLE = ("user.", "trusted.", "security.")  # what SquashFS can hold; ACLs (system.) it cannot
_OF_THIS_MACHINE = ("security.selinux", "security.evm")  # its policy's labels and its key's checksums
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """How a directory is read."""

    follows: bool = True  # its name may be a link to it
    all_root: bool = False  # give everything to root: what a user's own files should look like in an image
    unlocks: bool = False  # read also what its modes keep from its owner, in a directory that is kedge's own
    attributes: bool = True  # read extended attributes
    progress: Progress = field(default_factory=Silent)


class _Origin(NamedTuple):
    """Where a file's content is, and how to recognise the file."""

    tree: ConfinedTree
    path: bytes
    identity: tuple[int, int, int, int]
    changed: int  # st_ctime_ns
    locked: os.stat_result | None = None  # of a file that its owner may not read, and that is to be read all the same
    stored: int = 0  # bytes on the disk, without holes


class FolderSource:
    """Gives contents of files that a `FolderReading` found; `close` puts back the modes of what was unlocked."""

    def __init__(self) -> None:
        self._locked: dict[tuple[ConfinedTree, bytes], os.stat_result] = {}  # those above first

    def unlock(self, tree: ConfinedTree, path: bytes, known: os.stat_result) -> None:
        """Let the owner into a directory that was listed until `close`, if its mode does not."""
        mode = stat.S_IMODE(known.st_mode)
        if mode & 0o500 == 0o500 or (tree, path) in self._locked or os.geteuid() == 0:
            return
        if tree.change_mode(path, known, mode, mode | 0o500) is None:
            raise explain_change(tree.show(path))
        self._locked[tree, path] = known

    def close(self) -> dict[bytes, os.stat_result]:
        """Give directories back the modes they had, those below first; how these are now. May be called twice.

        One that has got another mode or place meanwhile, by who writes to the tree, is left as it is.
        """
        changed = {}
        while self._locked:
            (tree, path), known = self._locked.popitem()
            mode = stat.S_IMODE(known.st_mode)
            with contextlib.suppress(KedgeError):
                status = tree.change_mode(path, known, mode | 0o500, mode)
                if status is not None:
                    changed[path] = status
        return changed

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The file's bytes; FileProblem when it cannot be read or is not the file that was found."""
        if node.content is None:
            return
        origin = node.content
        assert isinstance(origin, _Origin)
        file = origin.tree.open_file(origin.path, origin.locked)
        try:
            _check_identity(file, origin)
            left = node.size
            while left:
                chunk = _read_chunk(file, min(left, _CHUNK), origin)
                left -= len(chunk)
                yield chunk
            _check_identity(file, origin)
        finally:
            os.close(file)


def read_folder(path: Path, options: FolderOptions | None = None) -> tuple[Node, FolderSource]:
    """The tree below `path` and where its contents come from; sockets are left out, hard links found by inode."""
    options = options or FolderOptions()
    reading = FolderReading(options)
    return reading.run(ConfinedTree(os.fsencode(path), follows=options.follows)), reading.source


class FolderReading:
    """Makes nodes of files on disk, one for all names of a file."""

    def __init__(self, options: FolderOptions) -> None:
        self.source = FolderSource()
        self._options = options
        self._linked: dict[tuple[int, int], Node] = {}

    def run(self, tree: ConfinedTree) -> Node:
        """The tree below a directory."""
        status = tree.find(b"")
        with tree.open_folder() as folder:
            root = self.make_node(folder, b"", status, NodeKind.DIRECTORY)
        pending = [(b"", status, root)]
        while pending:
            path, known, node = pending.pop()
            with tree.open_folder(path, known) as folder:
                for name, status in folder.entries():
                    child = self.find_node(folder, name, status)
                    if child is None:
                        continue
                    node.children[name] = child
                    if child.kind is NodeKind.DIRECTORY:
                        pending.append((folder.join(name), status, child))
        return root

    def find_node(self, folder: ConfinedFolder, name: bytes, status: os.stat_result) -> Node | None:
        """The node of a file that was listed, the same for all its names; None for a socket."""
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            shown = folder.tree.show(folder.join(name))
            self._options.progress.note(f"left out {shown}: sockets have no place in an image")
            return None
        if kind is NodeKind.DIRECTORY or status.st_nlink < 2:
            return self.make_node(folder, name, status, kind)
        key = (status.st_dev, status.st_ino)
        node = self._linked.get(key)
        if node is None:
            node = self._linked[key] = self.make_node(folder, name, status, kind)
        return node

    def make_node(self, folder: ConfinedFolder, name: bytes, status: os.stat_result, kind: NodeKind) -> Node:
        """A new node with the metadata of a file."""
        uid, gid = (0, 0) if self._options.all_root else (status.st_uid, status.st_gid)
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        node = Node(kind, stat.S_IMODE(status.st_mode), uid, gid, seconds)
        node.nanoseconds = nanoseconds
        locked = self._unlock(folder, name, status) if self._options.unlocks else None
        if self._options.attributes or kind is NodeKind.SYMLINK:  # most files of a context need neither
            self._read_more(folder, name, node, locked)
        if kind is NodeKind.FILE:
            node.size = status.st_size
            if status.st_size:
                path, stored = folder.join(name), status.st_blocks * 512
                node.content = _Origin(folder.tree, path, _identify(status), status.st_ctime_ns, locked, stored)
        elif kind in (NodeKind.BLOCK_DEVICE, NodeKind.CHARACTER_DEVICE):
            node.rdev = status.st_rdev
        return node

    def _read_more(self, folder: ConfinedFolder, name: bytes, node: Node, locked: os.stat_result | None) -> None:
        """What os.lstat does not say of a file: its attributes, and where a link leads."""
        tree = folder.tree
        try:
            if locked is not None and self._options.attributes:
                with tree.unlocked(folder.join(name), locked) as handle:
                    node.xattrs = _read_xattrs(b"/proc/self/fd/%d" % handle, follows=True)
            elif self._options.attributes:
                node.xattrs = _read_xattrs(folder.name(name))
            if node.kind is NodeKind.SYMLINK:
                node.target = folder.read_link(name)
        except OSError as problem:
            raise tree.explain(problem, folder.join(name)) from problem

    def _unlock(self, folder: ConfinedFolder, name: bytes, status: os.stat_result) -> os.stat_result | None:
        """Open a directory that its owner may not read, for good; of a file, what it is, for each look to unlock it."""
        if stat.S_ISDIR(status.st_mode):
            self.source.unlock(folder.tree, folder.join(name), status)
        is_locked = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o400 and os.geteuid() != 0
        return status if is_locked else None


def read_file(path: Path) -> Node:
    """Return the node of one file, given to root."""
    folder, name = os.path.split(os.fsencode(path))
    with ConfinedTree(folder).open_folder() as place, explained(path):
        node = FolderReading(FolderOptions(all_root=True)).find_node(
            place, name, os.stat(name, dir_fd=place.descriptor, follow_symlinks=False)
        )
    assert node is not None
    return node


def identify_content(node: Node) -> tuple[int, int, int, int, int] | None:
    """Device, inode, size, mtime and ctime of the file that a node of a `FolderReading` stands for, as it was then."""
    origin = node.content
    return (*origin.identity, origin.changed) if isinstance(origin, _Origin) else None


def is_mostly_hole(node: Node, least: int) -> bool:
    """Whether a file that a `FolderReading` found claims at least that size, and has nearly nothing on the disk."""
    return node.size >= least and isinstance(node.content, _Origin) and node.content.stored < node.size // 64


def _read_xattrs(path: bytes, *, follows: bool = False) -> Xattrs:
    try:
        names = os.listxattr(path, follow_symlinks=follows)
    except OSError as problem:
        if isinstance(problem, FileNotFoundError):
            raise
        return ()  # a file system without them, or a file whose attributes are not for us
    kept = [name for name in names if name.startswith(_STORABLE) and name not in _OF_THIS_MACHINE]
    return tuple(sorted((os.fsencode(name), os.getxattr(path, name, follow_symlinks=follows)) for name in kept))


def _identify(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_identity(file: int, origin: _Origin) -> None:
    if _identify(os.fstat(file)) != origin.identity:
        raise _changed(origin)


def _read_chunk(file: int, size: int, origin: _Origin) -> bytes:
    try:
        chunk = os.read(file, size)
    except OSError as problem:
        raise explain(problem, origin.tree.show(origin.path)) from problem
    if not chunk:
        raise _changed(origin)
    return chunk


def _changed(origin: _Origin) -> FileProblem:
    return explain_change(origin.tree.show(origin.path))
