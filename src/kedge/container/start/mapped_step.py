# SPDX-License-Identifier: BSD-3-Clause
"""A step of a build that has all users of the image: those of /etc/subuid and /etc/subgid.

One process stays outside of the container, in the user namespace: when the step has ended, it lets all that was written
be the caller's (`processes/step_owners.py`). What is in the image already is shown with its owners
(`mounts/level_owners.py`).
"""

from __future__ import annotations

import os
import stat

from kedge.base.owner_records import (
    MODE_ATTRIBUTE,
    OWNER_ATTRIBUTE,
    decode_owner,
    decode_records,
    encode_owner,
    encode_records,
)
from kedge.container.mount_operations import OPEN_DIRECTORY, name_descriptor, open_inside
from kedge.container.mounts.level_owners import find_owned
from kedge.container.processes.subordinate_ids import STEP_IDS
from kedge.container.processes.supervise import end_with_parent, go_on_in_child
from kedge.container.step_options import OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kedge.container.mounting import Layering
    from kedge.container.options import RunOptions
    from kedge.container.step_options import StepOptions


class MappedStep:
    """To be made before the namespaces are: where the image's owners cannot be shown, the step has one user."""

    def __init__(self, options: RunOptions, step: StepOptions) -> None:
        self._step = step
        self._kept: list[KeptFolder] = []
        self._owned = find_owned([options.image, *step.layers], STEP_IDS) if step.changes else None
        options.ignore_subuid = self._owned is None

    def go_on_inside(self, layering: Layering) -> None:
        """Called in the user namespace; returns in a child of this process, which is where the container is made."""
        layering.has_users, layering.owned = True, self._owned or ()
        end_with_parent(self._step.parent)
        try:
            self._begin()
        except OSError as problem:
            raise self._explain(problem) from problem
        own = os.getpid()
        go_on_in_child(lambda _: self._settle())
        self._step.parent = own

    def _begin(self) -> None:
        table = f"{self._step.changes}/{OWNERS}"
        if os.path.exists(table):  # a shell in a step that failed
            with open(table, "rb") as file:
                give_back(f"{self._step.changes}/upper", file.read())
            os.unlink(table)
        self._kept = [KeptFolder(str(path), (int(uid), int(gid))) for path, uid, gid in self._step.kept]

    def _settle(self) -> None:
        try:
            for folder in self._kept:
                folder.take_over()
            table = take_over(f"{self._step.changes}/upper")
            with open(f"{self._step.changes}/{OWNERS}", "wb") as file:
                file.write(table)
        except OSError as problem:
            raise self._explain(problem) from problem

    def _explain(self, problem: OSError) -> Exception:
        from kedge.system.files import explain  # late: only for an error

        return explain(problem, self._step.changes)


# Whose the files are that a step of a build has written, where its namespace knows the image's users.
#
# On the disk they belong to subordinate ids, which the caller can neither read nor remove, and which are others on
# every host. So when the step has ended, and its namespace is still there, root of it takes all files over and writes
# down whose they were: from then on they are as those of a step that had one user only. Directories that outlive the
# step (`RUN --mount=type=cache`) have the owner in an attribute, for the next one.
#
# All of it raises OSError. Every step does this, so it imports little.

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = (0, 0)
_ITSELF = b"."
_SETS_IDS = 0o6000  # setuid and setgid, which the kernel takes away with the owner, as capabilities
_CAPABILITY = "security.capability"


class _Found:
    """A name in an open directory, and its path from the top."""

    __slots__ = ("folder", "name", "path", "status")

    def __init__(self, folder: int, path: bytes, name: bytes) -> None:
        self.folder = folder
        self.path = path
        self.name = name
        self.status = os.lstat(name, dir_fd=folder)

    @property
    def owner(self) -> tuple[int, int]:
        """User and group."""
        return self.status.st_uid, self.status.st_gid

    @property
    def is_directory(self) -> bool:
        """Whether things are in it."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def takes_notes(self) -> bool:
        """Whether a file can have attributes of users; links, pipes and the like cannot."""
        return self.is_directory or stat.S_ISREG(self.status.st_mode)

    @property
    def place(self) -> bytes:
        """A name for calls that take no directory; of a file that is no link."""
        return os.fsencode(name_descriptor(self.folder)) + b"/" + self.name

    def give(self, owner: tuple[int, int]) -> None:
        """Change the owner, and nothing else."""
        mode = self.status.st_mode
        is_file = stat.S_ISREG(mode)
        capability = _read_attribute(self.place, _CAPABILITY) if is_file and mode & 0o111 else None
        os.chown(self.name, *owner, dir_fd=self.folder, follow_symlinks=False)
        if is_file and mode & _SETS_IDS:
            os.chmod(self.name, stat.S_IMODE(mode), dir_fd=self.folder)
        if capability is not None:
            os.setxattr(self.place, _CAPABILITY, capability)


def take_over(folder: str) -> bytes:
    """Let all files below a directory, and itself, be root's; the table of whose they were."""
    records = []
    known: dict[tuple[int, int], tuple[int, int]] = {}  # of files with several names
    for found in _walk(folder):
        owner = found.owner
        if found.is_directory:
            _drop_notes(found.place)
        elif found.status.st_nlink > 1:
            owner = known.setdefault((found.status.st_dev, found.status.st_ino), owner)
        if owner != _ROOT:
            found.give(_ROOT)
            records.append((found.path, *owner, None))
    return encode_records(records)


def _drop_notes(folder: bytes) -> None:
    """Take away what a step with one user noted at a directory, of the links in it too: the table is right."""
    for name in os.listxattr(folder):
        if name.startswith((OWNER_ATTRIBUTE, MODE_ATTRIBUTE)):
            os.removexattr(folder, name)


def give_back(folder: str, table: bytes) -> None:
    """Let the files have the owners that `take_over` wrote down."""
    top = os.open(folder, OPEN_DIRECTORY)
    try:
        for path, uid, gid, _ in decode_records(table):
            above, _, name = path.rpartition(b"/")
            opened = open_inside(top, "/" + os.fsdecode(above))
            try:
                _Found(opened, path, name or _ITSELF).give((uid, gid))
            finally:
                os.close(opened)
    finally:
        os.close(top)


class KeptFolder:
    """A directory that several steps use, also at the same time: the last one takes it over.

    Its own attribute says that files in it have one.
    """

    def __init__(self, folder: str, owner: tuple[int, int]) -> None:
        """Gives the files back to whom they belonged at the end of another step, the directory itself to `owner`."""
        from fcntl import LOCK_SH  # late: few steps have such directories

        self._folder = folder
        self._file = os.open(folder, _FOLDER)
        self._lock(LOCK_SH)
        if _read_attribute(self._file, OWNER_ATTRIBUTE) is not None:
            self._give_back()
        os.chown(self._file, *owner)

    def _give_back(self) -> None:
        for found in _walk(self._folder):
            noted = _read_attribute(found.place, OWNER_ATTRIBUTE) if found.takes_notes else None
            owner = decode_owner(noted) if noted is not None else None
            if owner is not None:
                os.removexattr(found.place, OWNER_ATTRIBUTE)  # it may be another soon
                found.give(owner)

    def take_over(self) -> None:
        """Let all files be the caller's, unless another step uses them."""
        from fcntl import LOCK_EX, LOCK_NB  # late: as above

        if self._lock(LOCK_EX | LOCK_NB):
            os.fchown(self._file, *_ROOT)
            for found in _walk(self._folder):
                if found.owner != _ROOT:
                    _note_owner(found.place if found.takes_notes else b"", found.owner)
                    found.give(_ROOT)
                    _note_owner(self._file, _ROOT)
        os.close(self._file)

    def _lock(self, kind: int) -> bool:
        from fcntl import flock  # late: as above

        try:
            flock(self._file, kind)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
        return True


def _walk(folder: str) -> Iterator[_Found]:
    """The directory itself, and all that is below it."""
    top = os.open(folder, _FOLDER)
    try:
        yield _Found(top, b"", _ITSELF)
        pending = [b""]
        while pending:
            path = pending.pop()
            opened = open_inside(top, "/" + os.fsdecode(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                for name in map(os.fsencode, os.listdir(opened)):
                    found = _Found(opened, path + b"/" + name if path else name, name)
                    yield found
                    if found.is_directory:
                        pending.append(found.path)
            finally:
                os.close(opened)
    finally:
        os.close(top)


def _note_owner(file: bytes | int, owner: tuple[int, int]) -> None:
    try:
        os.setxattr(file, OWNER_ATTRIBUTE, encode_owner(*owner))
    except OSError:
        return  # a file system without attributes, or a kind of file: it is root's the next time


def _read_attribute(file: bytes | int, name: str) -> bytes | None:
    try:
        return os.getxattr(file, name)
    except OSError:
        return None
