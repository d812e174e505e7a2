# SPDX-License-Identifier: BSD-3-Clause
"""The one walker: reads a tree that somebody else may change meanwhile, and never leaves it.

The directory at the top is held open. Whatever is below it is found from there by one call of the kernel that follows
no link and goes nowhere else (openat2, Linux 5.6), on older kernels directory by directory with O_NOFOLLOW. Nothing
goes up: a directory that is moved away while it is read stays the one it is, and leads to nothing beside it.

What a walk gives is each directory and file as it was at some moment of the walk. What is opened has to be the one that
was listed (device and inode; of files whose content is read, size and time too): another one in its place, a link, a
pipe, is the error "changed while it was being read". Modes are changed through descriptors, after the same comparison.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kedge.errors import FileProblem, KedgeError
from kedge.system import libc
from kedge.system.confined_paths import name_in
from kedge.system.files import explain

Identity = tuple[int, int]  # device and inode
Entries = list[tuple[bytes, os.stat_result]]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_WAY = _HANDLE | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe or device must not hold us
_NOT_BY_ONE_CALL = (errno.ENOSYS, errno.EPERM)  # an old kernel, a filter of calls
_LONGEST = 4095  # bytes of a path; more the kernel does not take, nor would any reader of layers
_TAKEN = (  # what was listed is not there any more; EINVAL: a link is none now, ENODATA: an attribute
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO),
    *(errno.EINVAL, errno.ENODATA),
)


class ConfinedTree:
    """A directory that is held open, and what is below it; paths are relative to it, `b""` is the directory itself.

    The links on the way to it are followed, for that is the user's own word; without `follows` its own name is none. It
    is closed when nobody knows it any more.
    """

    __slots__ = ("_root", "path")

    def __init__(self, path: bytes, *, follows: bool = True) -> None:
        self._root = -1
        self.path = path
        try:
            self._root = os.open(path, _WAY & ~os.O_NOFOLLOW if follows else _WAY)
        except NotADirectoryError as problem:
            shown = os.fsdecode(path)
            raise FileProblem(f"{shown} is not a directory", context={"path": shown}) from problem
        except OSError as problem:
            raise explain(problem, os.fsdecode(path)) from problem

    def __del__(self) -> None:
        if self._root >= 0:
            os.close(self._root)

    def locate(self, path: bytes) -> bytes:
        """The path on this host, for messages: who opens it may get something else."""
        return join_names(self.path, path)

    def show(self, path: bytes) -> str:
        """Return the whole path as text."""
        return os.fsdecode(self.locate(path))

    # -- opening: raises OSError

    def open(self, path: bytes, flags: int) -> int:
        """A descriptor of what is at a path; a symbolic link on the way or in its place is an error."""
        try:
            return libc.open_beneath(self._root, path or b".", flags)
        except OSError as problem:
            if problem.errno not in _NOT_BY_ONE_CALL:
                raise
        return _open_by_steps(self._root, path or b".", flags)

    def find(self, path: bytes) -> os.stat_result:
        """What os.lstat says of a path."""
        if not path:
            return os.fstat(self._root)
        handle = self.open(path, _HANDLE)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def read_link(self, path: bytes) -> bytes:
        """Where a symbolic link leads."""
        handle = self.open(path, _HANDLE)
        try:
            return os.readlink(b"", dir_fd=handle)
        finally:
            os.close(handle)

    def read(self, path: bytes, limit: int, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        try:
            file = self.open(path, _FILE)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            os.lseek(file, offset, os.SEEK_SET)
            with os.fdopen(file, "rb", closefd=False) as stream:
                return stream.read(limit)
        except OSError:
            return None
        finally:
            os.close(file)

    # -- what was listed: raises FileProblem where it is another one now

    def open_folder(self, path: bytes = b"", known: os.stat_result | None = None) -> ConfinedFolder:
        """A directory, to be looked into; `known` is what was listed."""
        folder = ConfinedFolder(self, path)
        if known is None:
            return folder
        try:
            folder.check(known)
        except BaseException:
            folder.close()
            raise
        return folder

    def open_file(self, path: bytes, known: os.stat_result | None = None) -> int:
        """A descriptor of a regular file for reading.

        With `known`, as it was listed, its mode may forbid us to read it: then it does not for a moment.
        """
        if known is None:
            try:
                return self.open(path, _FILE)
            except OSError as problem:
                raise self.explain(problem, path) from problem
        with self.unlocked(path, known) as handle, self._explained(path):
            return os.open(b"/proc/self/fd/%d" % handle, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def unlocked(self, path: bytes, known: os.stat_result) -> Iterator[int]:
        """A handle of a file whose mode lets its owner read it for the block."""
        with self._hold(path, known) as handle:
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            set_mode(handle, mode | 0o400)
            try:
                yield handle
            finally:
                set_mode(handle, mode)

    def change_mode(self, path: bytes, known: os.stat_result, before: int, after: int) -> os.stat_result | None:
        """Give a directory another mode, if it has the one `before`; how it is now, None where it has another."""
        with self._hold(path, known) as handle:
            if stat.S_IMODE(os.fstat(handle).st_mode) != before:
                return None
            with self._explained(path):
                set_mode(handle, after)
            return os.fstat(handle)

    @contextlib.contextmanager
    def _hold(self, path: bytes, known: os.stat_result) -> Iterator[int]:
        with self._explained(path):
            handle = self.open(path, _HANDLE) if path else os.dup(self._root)
        try:
            if identify(os.fstat(handle)) != identify(known):
                raise explain_change(self.show(path))
            yield handle
        finally:
            os.close(handle)

    def explain(self, problem: OSError, path: bytes) -> KedgeError:
        """The error to raise for an OSError on something that was listed."""
        shown = self.show(path)
        return explain_change(shown) if problem.errno in _TAKEN else explain(problem, shown)

    @contextlib.contextmanager
    def _explained(self, path: bytes) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise self.explain(problem, path) from problem


class ConfinedFolder:
    """A directory of a tree, opened when it is needed first: what is done in it is done to what is in it."""

    __slots__ = ("_descriptor", "_prefix", "path", "tree")

    def __init__(self, tree: ConfinedTree, path: bytes) -> None:
        self.tree = tree
        self.path = path
        self._prefix = path + b"/" if path else b""
        self._descriptor = -1

    def __enter__(self) -> ConfinedFolder:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        """After the last look."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def descriptor(self) -> int:
        """The open directory."""
        if self._descriptor < 0:
            try:
                self._descriptor = self.tree.open(self.path, _FOLDER)
            except OSError as problem:
                raise self.tree.explain(problem, self.path) from problem
        return self._descriptor

    def check(self, known: os.stat_result) -> None:
        """Raise unless it is the directory that was listed."""
        if identify(os.fstat(self.descriptor)) != identify(known):
            raise explain_change(self.tree.show(self.path))

    def entries(self) -> Entries:
        """Return the entries of the directory, in byte order of names."""
        folder = self.descriptor
        try:
            with os.scandir(folder) as found:
                return sorted([(os.fsencode(entry.name), entry.stat(follow_symlinks=False)) for entry in found])
        except OSError as problem:
            name = os.fsencode(problem.filename) if isinstance(problem.filename, str) else b""
            raise self.tree.explain(problem, self.join(name)) from problem

    def join(self, name: bytes) -> bytes:
        """The path of a name in it, from the tree's top; the empty name is the directory itself."""
        return self._prefix + name if name else self.path

    def read_link(self, name: bytes) -> bytes:
        """Where a symbolic link leads."""
        return os.readlink(name, dir_fd=self.descriptor)

    def name(self, name: bytes) -> bytes:
        """A path for calls that know no descriptors of directories (extended attributes); nothing leads elsewhere."""
        return name_in(self.descriptor, name)


def walk_tree(path: Path, *, follows: bool = True) -> Iterator[tuple[ConfinedFolder, Entries]]:
    """Each directory with what is in it, those above first; what is gone or closed to us is passed over.

    For counts and sums, which a tree that changes does not have anyway.
    """
    with contextlib.suppress(KedgeError):
        tree = ConfinedTree(os.fsencode(path), follows=follows)
        pending = [(b"", tree.find(b""))]
        while pending:
            with contextlib.suppress(KedgeError), tree.open_folder(*pending.pop()) as folder:
                entries = folder.entries()
                yield folder, entries
                pending += [(folder.join(name), known) for name, known in entries if stat.S_ISDIR(known.st_mode)]


def measure_files(path: Path) -> int:
    """The bytes of all files below a directory."""
    return sum(
        status.st_size for _, entries in walk_tree(path) for _, status in entries if not stat.S_ISDIR(status.st_mode)
    )


def identify(status: os.stat_result) -> Identity:
    """What a directory is known by."""
    return status.st_dev, status.st_ino


def set_mode(handle: int, mode: int) -> None:
    """Change the mode of what is open, also by O_PATH, which fchmod does not take."""
    os.chmod(b"/proc/self/fd/%d" % handle, mode)  # noqa: PTH101 - no path of ours


def join_names(folder: bytes, name: bytes) -> bytes:
    """A path of two parts, of which each may be empty."""
    return b"%s/%s" % (folder.rstrip(b"/"), name) if folder and name else folder or name


def explain_change(path: str) -> FileProblem:
    """Return an error for something that is not what was listed."""
    return FileProblem(
        f"{path} changed while it was being read", context={"path": path}, hint="try again when no program writes to it"
    )


def _open_by_steps(root: int, path: bytes, flags: int) -> int:
    """Open a path as openat2 does, by one call for each directory on the way."""
    if len(path) > _LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    *above, name = path.split(b"/")
    folder = root
    try:
        for each in above:
            inner = os.open(each, _WAY, dir_fd=folder)
            if folder != root:
                os.close(folder)
            folder = inner
        return os.open(name, flags, dir_fd=folder)
    finally:
        if folder != root:
            os.close(folder)
