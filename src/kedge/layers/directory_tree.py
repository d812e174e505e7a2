# SPDX-License-Identifier: BSD-3-Clause
"""A directory on disk as a tree: names and metadata are read at once, contents when a writer asks for them.

A file is recognised again by device, inode, size and time, so one that changed, or a link put in its way, is an error
and never a mixture.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kedge.errors import FileProblem
from kedge.model.progress import Progress, Silent
from kedge.model.tree import Node, NodeKind, Xattrs
from kedge.posix.confined_paths import NearbyFiles, open_exactly
from kedge.posix.files import explain, explained

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

    all_root: bool = False  # give everything to root: what a user's own files should look like in an image
    one_file_system: bool = False  # leave directories empty that others are mounted on
    unlocks: bool = False  # read also what its modes keep from its owner, in a directory that is kedge's own
    attributes: bool = True  # read extended attributes
    is_exact: bool = False  # the paths were resolved: no part of one may be a link when a file is opened
    progress: Progress = field(default_factory=Silent)


class _Origin(NamedTuple):
    """Where a file's content is, and how to recognise the file."""

    path: bytes
    identity: tuple[int, int, int, int]
    changed: int  # st_ctime_ns
    locked_mode: int | None = None  # of a file that its owner may not read, and that is to be read all the same
    stored: int = 0  # bytes on the disk, without holes
    is_exact: bool = False  # whether no part of the path may be a link


class FolderSource:
    """Gives contents of files that a `FolderReading` found; `close` puts back the modes of what was unlocked.

    Who reads many files of a directory in one thread, and closes this, hands over `nearby`.
    """

    def __init__(self, nearby: NearbyFiles | None = None) -> None:
        self._locked: dict[bytes, int] = {}  # by path, those above first
        self._open_exactly = open_exactly if nearby is None else nearby.open

    def unlock(self, folder: bytes, mode: int) -> None:
        """Let the owner into a directory until `close`, if its mode does not."""
        if mode & 0o500 == 0o500 or folder in self._locked or os.geteuid() == 0:
            return
        with explained(os.fsdecode(folder)):
            _change_mode(folder, mode | 0o500)
        self._locked[folder] = mode

    def close(self) -> dict[bytes, os.stat_result]:
        """Give directories back the modes they had, those below first; how these are now. May be called twice."""
        changed = {}
        while self._locked:
            folder, mode = self._locked.popitem()
            with contextlib.suppress(OSError):  # it is gone meanwhile
                _change_mode(folder, mode)
                changed[folder] = os.lstat(folder)
        return changed

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The file's bytes; FileProblem when it cannot be read or is not the file that was found."""
        if node.content is None:
            return
        origin = node.content
        assert isinstance(origin, _Origin)
        shown = os.fsdecode(origin.path)
        with explained(shown), _unlocked(origin.path, origin.locked_mode):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = self._open_exactly(origin.path, flags) if origin.is_exact else os.open(origin.path, flags)
        try:
            _check_identity(file, origin)
            left = node.size
            while left:
                with explained(shown):
                    chunk = os.read(file, min(left, _CHUNK))
                if not chunk:
                    raise _changed(origin)
                left -= len(chunk)
                yield chunk
            _check_identity(file, origin)
        finally:
            os.close(file)


def read_folder(path: Path, options: FolderOptions | None = None) -> tuple[Node, FolderSource]:
    """The tree below `path` and where its contents come from; sockets are left out, hard links found by inode."""
    reading = FolderReading(options or FolderOptions())
    return reading.run(os.fsencode(path)), reading.source


class FolderReading:
    """Makes nodes of files on disk, one for all names of a file."""

    def __init__(self, options: FolderOptions) -> None:
        self.source = FolderSource()
        self._options = options
        self._linked: dict[tuple[int, int], Node] = {}
        self._device = 0

    def run(self, path: bytes) -> Node:
        """The tree below a directory."""
        with explained(os.fsdecode(path)):
            status = Path(os.fsdecode(path)).stat()
        if not stat.S_ISDIR(status.st_mode):
            raise FileProblem(f"{os.fsdecode(path)} is not a directory", context={"path": os.fsdecode(path)})
        self._device = status.st_dev
        root = self.make_node(path, status, NodeKind.DIRECTORY)
        pending = [(path, root)]
        while pending:
            folder, node = pending.pop()
            for name, child in self._read_entries(folder):
                node.children[name] = child
                if child.kind is NodeKind.DIRECTORY and not self._is_left_out(folder, name):
                    pending.append((folder + b"/" + name, child))
        return root

    def _read_entries(self, folder: bytes) -> Iterator[tuple[bytes, Node]]:
        for entry, status in list_entries(folder):
            node = self.find_node(entry.path, status)
            if node is not None:
                yield entry.name, node

    def _is_left_out(self, folder: bytes, name: bytes) -> bool:
        return self._options.one_file_system and os.lstat(folder + b"/" + name).st_dev != self._device

    def find_node(self, path: bytes, status: os.stat_result) -> Node | None:
        """The node of a file, the same for all its names; None for a socket."""
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            self._options.progress.note(f"left out {os.fsdecode(path)}: sockets have no place in an image")
            return None
        if kind is NodeKind.DIRECTORY or status.st_nlink < 2:
            return self.make_node(path, status, kind)
        key = (status.st_dev, status.st_ino)
        node = self._linked.get(key)
        if node is None:
            node = self._linked[key] = self.make_node(path, status, kind)
        return node

    def make_node(self, path: bytes, status: os.stat_result, kind: NodeKind) -> Node:
        """A new node with the metadata of a file."""
        uid, gid = (0, 0) if self._options.all_root else (status.st_uid, status.st_gid)
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        node = Node(kind, stat.S_IMODE(status.st_mode), uid, gid, seconds)
        node.nanoseconds = nanoseconds
        locked_mode = self._unlock(path, node)
        if self._options.attributes or kind is NodeKind.SYMLINK:  # most files of a context need neither
            with explained(os.fsdecode(path)), _unlocked(path, locked_mode):
                node.xattrs = _read_xattrs(path) if self._options.attributes else ()
                if kind is NodeKind.SYMLINK:
                    node.target = os.readlink(path)  # noqa: PTH115 - targets are bytes
        if kind is NodeKind.FILE:
            node.size = status.st_size
            if status.st_size:
                stored = status.st_blocks * 512
                node.content = _Origin(
                    path, _identify(status), status.st_ctime_ns, locked_mode, stored, self._options.is_exact
                )
        elif kind in (NodeKind.BLOCK_DEVICE, NodeKind.CHARACTER_DEVICE):
            node.rdev = status.st_rdev
        return node

    def _unlock(self, path: bytes, node: Node) -> int | None:
        """Open a directory that its owner may not read, for good; of a file, the mode to put back after each look."""
        if not self._options.unlocks:
            return None
        if node.kind is NodeKind.DIRECTORY:
            self.source.unlock(path, node.mode)
        is_locked = node.kind is NodeKind.FILE and not node.mode & 0o400 and os.geteuid() != 0
        return node.mode if is_locked else None


def identify_content(node: Node) -> tuple[int, int, int, int, int] | None:
    """Device, inode, size, mtime and ctime of the file that a node of a `FolderReading` stands for, as it was then."""
    origin = node.content
    return (*origin.identity, origin.changed) if isinstance(origin, _Origin) else None


def is_mostly_hole(node: Node, least: int) -> bool:
    """Whether a file that a `FolderReading` found claims at least that size, and has nearly nothing on the disk."""
    return node.size >= least and isinstance(node.content, _Origin) and node.content.stored < node.size // 64


def list_entries(folder: bytes) -> list[tuple[os.DirEntry[bytes], os.stat_result]]:
    """What is in a directory, in byte order of names."""
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        return [(entry, entry.stat(follow_symlinks=False)) for entry in ordered]
    except OSError as problem:
        raise explain(problem, os.fsdecode(problem.filename or folder)) from problem


def list_exactly(folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    """Names and status of what is in a directory whose path was resolved; an error if it leads elsewhere by now."""
    with explained(os.fsdecode(folder)):
        opened = open_exactly(folder)
        try:
            with os.scandir(opened) as entries:
                return [(os.fsencode(entry.name), entry.stat(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(opened)


@contextlib.contextmanager
def _unlocked(path: bytes, locked_mode: int | None) -> Iterator[None]:
    """Let the owner read a file for the block, whose mode forbids it."""
    if locked_mode is None:
        yield
        return
    _change_mode(path, locked_mode | 0o400)
    try:
        yield
    finally:
        _change_mode(path, locked_mode)


def _change_mode(path: bytes, mode: int) -> None:
    """By a descriptor: a link that took the name meanwhile is not followed."""
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{file}", mode)  # noqa: PTH101 - fchmod takes no such descriptor
    finally:
        os.close(file)


def _read_xattrs(path: bytes) -> Xattrs:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as problem:
        if isinstance(problem, FileNotFoundError):
            raise
        return ()  # a file system without them, or a file whose attributes are not for us
    kept = [name for name in names if name.startswith(_STORABLE) and name not in _OF_THIS_MACHINE]
    return tuple(sorted((os.fsencode(name), os.getxattr(path, name, follow_symlinks=False)) for name in kept))


def _identify(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_identity(file: int, origin: _Origin) -> None:
    if _identify(os.fstat(file)) != origin.identity:
        raise _changed(origin)


def _changed(origin: _Origin) -> FileProblem:
    path = os.fsdecode(origin.path)
    return FileProblem(
        f"{path} changed while it was being read", context={"path": path}, hint="try again when no program writes to it"
    )
