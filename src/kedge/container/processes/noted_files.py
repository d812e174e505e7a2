# SPDX-License-Identifier: BSD-3-Clause
"""Files of a step as its programs are to see them: whose they are, and who may do what with them.

To the kernel all of them are one user's. The owner that a program gave a file is in an attribute of it, and so is the
device that an empty file stands for, because only real root can make devices.
"""

from __future__ import annotations

import errno
import os
import stat

from kedge.base.owner_records import (
    DEVICE_ATTRIBUTE,
    MODE_ATTRIBUTE,
    NAME_ATTRIBUTE,
    OWNER_ATTRIBUTE,
    decode_device,
    decode_mode,
    decode_owner,
    encode_device,
    encode_mode,
    encode_owner,
)
from kedge.container.mount_operations import name_descriptor, open_inside
from kedge.system import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.processes.process_identities import Identity
    from kedge.system.call_notices import CallNotice

READ, WRITE, EXECUTE = 4, 2, 1
HERE = 0xFFFFFF9C  # AT_FDCWD
_STICKY, _SETS_GROUP = 0o1000, 0o2000
_SETS_IDS = 0o6000


class NotedFile:
    """An open file, or directory, and its owner; `close` it afterwards."""

    __slots__ = ("_name", "_owns_parent", "_parent", "device", "file", "gid", "has_mode", "mode", "uid")

    def __init__(self, file: int, parent: int = -1, name: bytes = b"") -> None:
        self.file = file
        self._parent, self._name = parent, name  # the directory it is in, for what has no attributes itself
        self._owns_parent = False
        self.mode = os.fstat(file).st_mode
        self.has_mode = False  # whether the mode is not the one on the disk
        noted = self._read_owner()
        self.uid, self.gid = (decode_owner(noted) if noted else None) or (0, 0)
        names = os.listxattr(name_descriptor(file)) if noted else ()
        if MODE_ATTRIBUTE in names:
            mode = decode_mode(_read_note(file, MODE_ATTRIBUTE), stat.S_IMODE(self.mode))
            if mode is not None:
                self.mode, self.has_mode = stat.S_IFMT(self.mode) | mode, True
        self.device = decode_device(_read_note(file, DEVICE_ATTRIBUTE)) if DEVICE_ATTRIBUTE in names else None

    def _read_owner(self) -> bytes:
        if has_attributes(self.mode):
            return _read_note(self.file, OWNER_ATTRIBUTE)
        return _read_note(self._parent, name_note(self._name)) if self._name else b""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.file)
        if self._owns_parent:
            os.close(self._parent)

    def keep_parent(self) -> None:
        """The directory it is in is closed with it."""
        self._owns_parent = True

    @property
    def path(self) -> str:
        """A name for calls that take no descriptor."""
        return name_descriptor(self.file)

    @property
    def is_directory(self) -> bool:
        """Whether things are in it."""
        return stat.S_ISDIR(self.mode)

    def lets(self, identity: Identity, wanted: int) -> bool:
        """Whether somebody may read, write or execute it."""
        if identity.is_root:
            return True
        shift = 6 if identity.uid == self.uid else 3 if identity.is_member(self.gid) else 0
        return not wanted & ~(self.mode >> shift)

    def lets_remove(self, identity: Identity, name: bytes) -> bool:
        """Whether somebody may take a name out of this directory."""
        if not self.lets(identity, WRITE | EXECUTE):
            return False
        if identity.is_root or not self.mode & _STICKY or identity.uid == self.uid:
            return True
        try:
            found = open_last(self.file, name)
        except OSError:
            return True  # there is nothing to remove
        try:
            return found.uid == identity.uid
        finally:
            found.close()

    def give(self, uid: int, gid: int) -> bool:
        """Note an owner, where it differs from what is noted and the file system takes notes; whether that is above."""
        return (uid, gid) != (self.uid, self.gid) and self._note(uid, gid)

    def _note(self, uid: int, gid: int) -> bool:
        place, name = self.path, OWNER_ATTRIBUTE
        if not has_attributes(self.mode) and self._name:
            place, name = name_descriptor(self._parent), name_note(self._name)
            os.chown(self.path, -1, -1)  # an overlay copies it into the step's layer, as it would for another owner
        try:
            os.setxattr(place, name, encode_owner(uid, gid))
        except OSError:
            return False
        return name != OWNER_ATTRIBUTE

    def drop_privileges(self) -> None:
        """Take setuid bits and capabilities, as the kernel does when a file is given away, be it to its owner."""
        if self.is_directory:
            return
        if self.mode & _SETS_IDS or "security.capability" in os.listxattr(self.path):
            os.chown(self.path, -1, -1)  # the kernel's own rules, without a change of owner
        if self.has_mode and self.mode & _SETS_IDS:
            shown = stat.S_IMODE(os.stat(self.path).st_mode)
            kept = self.mode & ~stat.S_ISUID & (~stat.S_ISGID if self.mode & stat.S_IXGRP else ~0)
            self.note_mode(stat.S_IMODE(kept), shown)

    def note_mode(self, mode: int, shown: int) -> None:
        """Note another mode than the one of the image below, where that is noted."""
        if self.has_mode:
            os.setxattr(self.path, MODE_ATTRIBUTE, encode_mode(mode, shown))

    def note_new(self, name: bytes, identity: Identity) -> bool:
        """Note whose a new file in this directory is, root's too, as the step may be another's; whether it is here."""
        gid = self.gid if self.mode & _SETS_GROUP else identity.gid
        made = open_last(self.file, name)
        try:
            return made._note(identity.uid, gid)
        finally:
            made.close()

    def make_device(self, name: bytes, mode: int, number: int) -> None:
        """Make what stands for a device in this directory; raises OSError."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, stat.S_IMODE(mode), dir_fd=self.file)
        try:
            gid = self.gid if self.mode & _SETS_GROUP else 0
            os.setxattr(file, DEVICE_ATTRIBUTE, encode_device(mode, number))
            os.setxattr(file, OWNER_ATTRIBUTE, encode_owner(0, gid))
        except OSError:
            os.unlink(name, dir_fd=self.file)
            raise
        finally:
            os.close(file)


def has_attributes(mode: int) -> bool:
    """Whether a file of this kind can have notes itself."""
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def name_note(name: bytes) -> str:
    """The attribute of a directory that says whose a link or pipe in it is."""
    return NAME_ATTRIBUTE + os.fsdecode(name)


def _read_note(file: int, attribute: str) -> bytes:
    try:
        return os.getxattr(name_descriptor(file), attribute)
    except OSError:
        return b""


def open_target(notice: CallNotice, folder: int, path: bytes, *, follows: bool = True) -> NotedFile:
    """What a caller's path leads to; an empty path is the folder. Raises OSError.

    No link of /proc is followed: it would lead to what this process may see and the caller may not.
    """
    if not path:
        return NotedFile(notice.open_file(folder))
    if follows:
        return NotedFile(_open(notice, folder, path))
    parent, name = open_parent(notice, folder, path)
    try:
        found = open_last(parent.file, name)
    except OSError:
        parent.close()
        raise
    found.keep_parent()
    return found


def open_owned(notice: CallNotice, folder: int, path: bytes, *, follows: bool) -> NotedFile:
    """Open as `open_target` a path that may have no attributes, as a pipe, which keeps its directory; or OSError."""
    found = open_target(notice, folder, path, follows=not path)
    if not follows or not stat.S_ISLNK(found.mode):
        return found
    found.close()
    return open_target(notice, folder, path)


def open_parent(notice: CallNotice, folder: int, path: bytes) -> tuple[NotedFile, bytes]:
    """The directory that the last name of a caller's path is in, and that name; raises OSError."""
    above, slash, name = path.rstrip(b"/").rpartition(b"/")
    if not name:
        above, name = path or b".", b"."
    elif name == b"..":
        above, name = path, b"."
    return NotedFile(_open(notice, folder, above + slash if above or slash else b".")), name


def open_last(folder: int, name: bytes) -> NotedFile:
    """A name in an open directory, no link followed; raises OSError."""
    return NotedFile(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), folder, name)


def _open(notice: CallNotice, folder: int, path: bytes) -> int:
    if path.startswith(b"/"):
        root = notice.open_own("root", os.O_PATH)
        try:
            return open_inside(root, os.fsdecode(path))
        finally:
            os.close(root)
    start = notice.open_file(folder)
    try:
        return libc.open_without_magic(start, path, os.O_PATH | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno != errno.ENOSYS:
            raise
        return os.open(
            path, os.O_PATH | os.O_CLOEXEC, dir_fd=start
        )  # before Linux 5.6; nothing but a mount's is changed
    finally:
        os.close(start)


def name_for_kernel(process: int, folder: int, path: bytes) -> bytes:
    """Return a name by which this process finds the file that a call names: to look only, as it may lead anywhere."""
    if path.startswith(b"/"):
        return b"/proc/%d/root%s" % (process, path)
    if folder & 0xFFFFFFFF == HERE:
        return b"/proc/%d/cwd/%s" % (process, path)
    return b"/proc/%d/fd/%d%s" % (process, folder & 0xFFFFFFFF, b"/" + path if path else b"")


class ImageMounts:
    """Tells the files of the image from those of mounts in it, of which nothing is noted."""

    def __init__(self, image_root: str) -> None:
        self._image_root = image_root  # where the image is in the container
        self._mounts: dict[int, bytes] = {}  # by mount namespace

    def has(self, notice: CallNotice, file: int) -> bool:
        """Whether an open file is the image's."""
        return _find_mount(file) == self._find_root(notice.process)

    def _find_root(self, process: int) -> bytes:
        """The mount of the image, as a caller has it: it has another number in each mount namespace."""
        namespace = os.stat(f"/proc/{process}/ns/mnt").st_ino
        if namespace not in self._mounts:
            root = os.open(f"/proc/{process}/root{self._image_root}", os.O_PATH | os.O_CLOEXEC)
            self._mounts[namespace] = _find_mount(root)
            os.close(root)
        return self._mounts[namespace]


def _find_mount(file: int) -> bytes:
    """The number of the mount that an open file is in."""
    info = os.open(f"/proc/self/fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(info, 4096).partition(b"mnt_id:")[2].split()[0]
    finally:
        os.close(info)
