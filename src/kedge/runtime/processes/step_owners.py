# SPDX-License-Identifier: BSD-3-Clause
"""Whose the files are that a step of a build has written, where its namespace knows the image's users.

On the disk they belong to subordinate ids, which the caller can neither read nor remove, and which are others on every
host. So when the step has ended, and its namespace is still there, root of it takes all files over and writes down
whose they were: from then on they are as those of a step that had one user only. Directories that outlive the step
(`RUN --mount=type=cache`) have the owner in an attribute, for the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from kedge.model.owner_attribute import MODE_ATTRIBUTE, OWNER_ATTRIBUTE, decode_owner, encode_owner
from kedge.model.owner_records import decode_records, encode_records
from kedge.posix.files import explained
from kedge.posix.tree_walk import ConfinedFolder, ConfinedTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROOT = (0, 0)
_SETS_IDS = 0o6000  # setuid and setgid, which the kernel takes away with the owner, as capabilities
_CAPABILITY = "security.capability"


def take_over(folder: Path) -> bytes:
    """Let all files below a directory, and itself, be root's; the table of whose they were."""
    records = []
    known: dict[tuple[int, int], tuple[int, int]] = {}  # of files with several names
    for opened, name, status in _walk(folder):
        owner = (status.st_uid, status.st_gid)
        if stat.S_ISDIR(status.st_mode):
            _drop_notes(opened.name(name))
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            owner = known.setdefault((status.st_dev, status.st_ino), owner)
        if owner != _ROOT:
            _give(opened, name, status, _ROOT)
            records.append((opened.join(name), *owner, None))
    return encode_records(records)


def _drop_notes(folder: bytes) -> None:
    """Take away what a step with one user noted at a directory, of the links in it too: the table is right."""
    for name in os.listxattr(folder):
        if name.startswith((OWNER_ATTRIBUTE, MODE_ATTRIBUTE)):
            os.removexattr(folder, name)


def give_back(folder: Path, table: bytes) -> None:
    """Let the files have the owners that `take_over` wrote down."""
    tree = ConfinedTree(os.fsencode(folder), follows=False)
    for path, uid, gid, _ in decode_records(table):
        above, _, name = path.rpartition(b"/")
        with tree.open_folder(above) as opened:
            _give(opened, name, tree.find(path), (uid, gid))


class KeptFolder:
    """A directory that several steps use, also at the same time: the last one takes it over.

    Its own attribute says that files in it have one.
    """

    def __init__(self, folder: Path, owner: tuple[int, int]) -> None:
        """Gives the files back to whom they belonged at the end of another step, the directory itself to `owner`."""
        self._folder = folder
        with explained(folder):
            self._file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._lock(fcntl.LOCK_SH)
            if _read_attribute(self._file, OWNER_ATTRIBUTE) is not None:
                self._give_back()
            os.chown(self._file, *owner)

    def _give_back(self) -> None:
        for opened, name, status in _walk(self._folder):
            noted = _read_attribute(opened.name(name), OWNER_ATTRIBUTE) if _has_attributes(status) else None
            owner = decode_owner(noted) if noted is not None else None
            if owner is not None:
                os.removexattr(opened.name(name), OWNER_ATTRIBUTE, follow_symlinks=False)  # it may be another soon
                _give(opened, name, status, owner)

    def take_over(self) -> None:
        """Let all files be the caller's, unless another step uses them."""
        with explained(self._folder):
            if self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                os.fchown(self._file, *_ROOT)
                for opened, name, status in _walk(self._folder):
                    owner = (status.st_uid, status.st_gid)
                    if owner != _ROOT:
                        _note_owner(opened.name(name), status, owner)
                        _give(opened, name, status, _ROOT)
                        _note_owner(self._file, os.fstat(self._file), _ROOT)
            os.close(self._file)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
        return True


def _walk(folder: Path) -> Iterator[tuple[ConfinedFolder, bytes, os.stat_result]]:
    """The directory itself, with no name, and all that is below it."""
    tree = ConfinedTree(os.fsencode(folder), follows=False)
    top = tree.find(b"")
    with tree.open_folder() as opened:
        yield opened, b"", top
    pending = [b""]
    while pending:
        with tree.open_folder(pending.pop()) as opened:
            for name, status in opened.entries():
                yield opened, name, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(opened.join(name))


def _give(folder: ConfinedFolder, name: bytes, status: os.stat_result, owner: tuple[int, int]) -> None:
    """Change the owner, and nothing else."""
    is_file = stat.S_ISREG(status.st_mode)
    with explained(folder.tree.show(folder.join(name))):
        capability = _read_attribute(folder.name(name), _CAPABILITY) if is_file and status.st_mode & 0o111 else None
        if name:
            os.chown(name, *owner, dir_fd=folder.descriptor, follow_symlinks=False)
        else:
            os.chown(folder.descriptor, *owner)
        if is_file and status.st_mode & _SETS_IDS:
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=folder.descriptor)
        if capability is not None:
            os.setxattr(folder.name(name), _CAPABILITY, capability, follow_symlinks=False)


def _note_owner(file: bytes | int, status: os.stat_result, owner: tuple[int, int]) -> None:
    if _has_attributes(status):
        with contextlib.suppress(OSError):  # a file system without attributes: the file is root's the next time
            os.setxattr(file, OWNER_ATTRIBUTE, encode_owner(*owner))


def _has_attributes(status: os.stat_result) -> bool:
    """Whether a file can have those of users; links, pipes and the like cannot."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


def _read_attribute(file: bytes | int, name: str) -> bytes | None:
    try:
        return os.getxattr(file, name)
    except OSError:
        return None
