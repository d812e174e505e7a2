# SPDX-License-Identifier: BSD-3-Clause
"""Answers calls about files from programs of a step, where the kernel knows one user only: whose a file is, who makes
it, and whether somebody may.

Reading is nobody's secret in a build: only what changes the image is refused to who may not.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from kedge.base.owner_records import MODE_ATTRIBUTE, NAME_ATTRIBUTE, OWNER_ATTRIBUTE
from kedge.container.processes.emulated_calls import IDENTITY_CALLS, STATUS_PLACES
from kedge.container.processes.noted_files import (
    EXECUTE,
    HERE,
    WRITE,
    ImageMounts,
    NotedFile,
    has_attributes,
    name_for_kernel,
    name_note,
    open_owned,
    open_parent,
    open_target,
)
from kedge.container.processes.process_identities import SAME, Identity, read_capabilities, read_umask
from kedge.system import libc
from kedge.system.call_notices import refuse
from kedge.system.libc import CAP_CHOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.system.call_notices import CallNotice

    Answer = Callable[[CallNotice, Identity], "int | GivenFile | None"]

_NO_FOLLOW, _EACCESS, _EMPTY_PATH = 0x100, 0x200, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EACCESS, AT_EMPTY_PATH
_DEVICES = (stat.S_IFCHR, stat.S_IFBLK)
_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC
_STATX_PLACES = (28, 20, 24, 128)  # of struct statx: mode, user, group, the device's numbers
_STATX_BUFFER = 4  # the argument that says where struct statx goes
# by call: which argument is the path; the flags, or what they are, negative; where the answer goes
LOOKS = {
    "stat": (0, -0x10000, 1),
    "lstat": (0, -_NO_FOLLOW, 1),
    "newfstatat": (1, 3, 2),
    "statx": (1, 2, _STATX_BUFFER),
}
_CREATE = os.O_CREAT | os.O_WRONLY | os.O_TRUNC  # what creat(2) does


class GivenFile:
    """An answer: the call returns a descriptor of this file, which is ours to close."""

    __slots__ = ("file", "is_private")

    def __init__(self, file: int, *, is_private: bool) -> None:
        self.file = file
        self.is_private = is_private


class FileCalls:
    """The answers by name of the call; as in `IdentityCalls`."""

    def __init__(self, machine: str, image_root: str, *, has_capabilities: bool, has_named_notes: bool) -> None:
        self._image_root = image_root  # where the image is in the container
        self._mounts = ImageMounts(image_root)
        self._has_capabilities = has_capabilities  # whether the kernel knows what a process that is root may do
        self.notes_root = not has_capabilities  # whether what root makes has to be noted, as the step is another's
        numbers = {name: number for number, name in IDENTITY_CALLS[machine].items()}
        self._status_call, self._statx_call = numbers["newfstatat"], numbers["statx"]
        self._places = STATUS_PLACES[machine]
        self.answers: dict[str, Answer] = {**self._list_looks(), **self._list_changes()}
        self.has_named_notes = has_named_notes  # whether a directory may have notes of links in it
        self.has_roots = False  # whether a process may have another root than this one

    def _list_looks(self) -> dict[str, Answer]:
        return {
            "access": lambda notice, identity: self._access(notice, identity, -1, 0),
            "faccessat": lambda notice, identity: self._access(notice, identity, 0, 0),
            "faccessat2": lambda notice, identity: self._access(notice, identity, 0, notice.arguments[3]),
        }

    def _list_changes(self) -> dict[str, Answer]:
        return {
            "chown": lambda notice, identity: self._own(notice, identity, -1, 0),
            "lchown": lambda notice, identity: self._own(notice, identity, -1, _NO_FOLLOW),
            "fchown": self._own_open,
            "fchownat": lambda notice, identity: self._own(notice, identity, 0, notice.arguments[4]),
            "chmod": lambda notice, identity: self._permit(notice, identity, -1, is_named=True),
            "fchmod": lambda notice, identity: self._permit(notice, identity, 0, is_named=False),
            "fchmodat": lambda notice, identity: self._permit(notice, identity, 0, is_named=True),
            "fchmodat2": lambda notice, identity: self._permit(notice, identity, 0, is_named=True),
            "open": lambda notice, identity: self._open(notice, identity, -1, notice.arguments[1], 2),
            "creat": lambda notice, identity: self._open(notice, identity, -1, _CREATE, 1),
            "openat": lambda notice, identity: self._open(notice, identity, 0, notice.arguments[2], 3),
            "mknod": lambda notice, identity: self._make_node(notice, identity, -1),
            "mknodat": lambda notice, identity: self._make_node(notice, identity, 0),
            "mkdir": lambda notice, identity: self._make_directory(notice, identity, -1),
            "mkdirat": lambda notice, identity: self._make_directory(notice, identity, 0),
            "symlink": lambda notice, identity: self._make_link(notice, identity, -1, 1),
            "symlinkat": lambda notice, identity: self._make_link(notice, identity, 1, 2),
            "link": lambda notice, identity: self._enter(notice, identity, -1, 1),
            "linkat": lambda notice, identity: self._enter(notice, identity, 2, 3),
            "unlink": lambda notice, identity: self._remove(notice, identity, -1, 0),
            "rmdir": lambda notice, identity: self._remove(notice, identity, -1, 0),
            "unlinkat": lambda notice, identity: self._remove(notice, identity, 0, 1),
            "rename": lambda notice, identity: self._rename(notice, identity, (-1, 0), (-1, 1)),
            "renameat": lambda notice, identity: self._rename(notice, identity, (0, 1), (2, 3)),
            "renameat2": lambda notice, identity: self._rename(notice, identity, (0, 1), (2, 3)),
        }

    # -- looking

    def look(self, name: str, notice: CallNotice) -> int | None:
        """Answer stat(2) and its kin: show the owner that is noted; a file without a note is as the kernel says.

        There are more of these calls than of all others: whether there is a note is asked first, in one call.
        """
        position, flags_position, buffer = LOOKS[name]
        arguments = notice.arguments
        flags = arguments[flags_position] if flags_position >= 0 else -flags_position
        folder = arguments[0] if position != 0 else HERE
        path = notice.read_path(position)
        follows = not flags & _NO_FOLLOW
        place = self._name(notice.process, folder, path)
        try:
            if OWNER_ATTRIBUTE not in os.listxattr(place, follow_symlinks=follows) and (
                follows or not self.has_named_notes or not _is_noted_above(place)
            ):
                return None
        except OSError:
            return None
        return self._show_status(notice, open_target(notice, folder, path, follows=follows), flags, buffer)

    def _name(self, process: int, folder: int, path: bytes) -> bytes:
        """A name for one look, by which everybody finds the same as long as nobody has another root."""
        return path if path.startswith(b"/") and not self.has_roots else name_for_kernel(process, folder, path)

    def _show_status(self, notice: CallNotice, file: NotedFile, flags: int, buffer: int) -> int:
        is_statx = buffer == _STATX_BUFFER
        try:
            options = (flags & ~(_NO_FOLLOW | _EMPTY_PATH), notice.arguments[3] & 0xFFFFFFFF) if is_statx else None
            data = libc.read_status(file.file, self._statx_call if is_statx else self._status_call, options)
            self._show(file, data, is_statx=is_statx)
        finally:
            file.close()
        size = 256 if is_statx else self._places[4]
        notice.write_memory(notice.arguments[buffer], bytes(data[:size]))
        return 0

    def _show(self, file: NotedFile, data: bytearray, *, is_statx: bool) -> None:
        """Put owner and kind into what the kernel said."""
        mode, uid, gid, device = _STATX_PLACES if is_statx else self._places[:4]
        struct.pack_into("=I", data, uid, file.uid)
        struct.pack_into("=I", data, gid, file.gid)
        kind, number = file.device or (stat.S_IFMT(file.mode), 0)
        if file.device is not None or file.has_mode:
            struct.pack_into("=H" if is_statx else "=I", data, mode, kind | stat.S_IMODE(file.mode))
        if file.device is None:
            return
        if is_statx:
            struct.pack_into("=II", data, device, os.major(number), os.minor(number))
        else:
            struct.pack_into("=Q", data, device, number)

    def _access(self, notice: CallNotice, identity: Identity, folder: int, flags: int) -> None:
        path, wanted = notice.read_path(folder + 1), notice.arguments[folder + 2]
        asked = identity if flags & _EACCESS else identity.as_real()
        file = open_target(notice, _pick(notice, folder), path, follows=not flags & _NO_FOLLOW)
        try:
            if self._mounts.has(notice, file.file) and not file.lets(asked, wanted & 7):
                raise refuse()
        finally:
            file.close()

    # -- owners and modes

    def _own(self, notice: CallNotice, identity: Identity, folder: int, flags: int) -> int:
        """Note one change of owner, by a path."""
        path = notice.read_path(folder + 1)
        if not path and not flags & _EMPTY_PATH:
            raise refuse(errno.ENOENT)
        follows = not flags & _NO_FOLLOW
        place = self._name(notice.process, _pick(notice, folder), path)
        # links, which may lead anywhere, take the long way
        if path and self._is_given(notice, identity, place, folder + 2, os.lstat):
            return 0
        file = open_owned(notice, _pick(notice, folder), path, follows=follows)
        return self._note_owner(notice, identity, file, folder + 2)

    def _own_open(self, notice: CallNotice, identity: Identity) -> int:
        """Answer a change of owner of an open file. dpkg gives every file that it has open to root."""
        place = name_for_kernel(notice.process, notice.arguments[0], b"")
        if self._is_given(notice, identity, place, 1, os.stat):
            return 0
        return self._note_owner(notice, identity, NotedFile(notice.open_file(notice.arguments[0])), 1)

    def _mark_named_notes(self) -> None:
        """Remember it, in this step and in those above its layer."""
        if not self.has_named_notes:
            self.has_named_notes = True
            os.setxattr(self._image_root, NAME_ATTRIBUTE, b"")

    @staticmethod
    def _is_given(
        notice: CallNotice, identity: Identity, place: bytes, position: int, look: Callable[[bytes], os.stat_result]
    ) -> bool:
        """Whether a file that root gives to root is root's already, and loses nothing by it: one look, as most are."""
        if not identity.is_root or any(
            number & 0xFFFFFFFF not in (0, SAME) for number in notice.arguments[position : position + 2]
        ):
            return False
        status = look(place)
        return has_attributes(status.st_mode) and not status.st_mode & 0o6000 and not os.listxattr(place)

    def _note_owner(self, notice: CallNotice, identity: Identity, file: NotedFile, position: int) -> int:
        uid, gid = (number & 0xFFFFFFFF for number in notice.arguments[position : position + 2])
        try:
            if self._mounts.has(notice, file.file):  # else it is in a bind, and no part of a layer
                self._require_owner(notice, identity, file, uid, gid)
                file.drop_privileges()
                if file.give(file.uid if uid == SAME else uid, file.gid if gid == SAME else gid):
                    self._mark_named_notes()
        finally:
            file.close()
        return 0

    def _require_owner(self, notice: CallNotice, identity: Identity, file: NotedFile, uid: int, gid: int) -> None:
        """Root may give files away; their owner may give them to groups of his own."""
        if identity.is_root:
            if self._has_capabilities and not read_capabilities(notice.process) >> CAP_CHOWN & 1:
                raise refuse(errno.EPERM)
            return
        may_give = identity.uid == file.uid and uid in (SAME, file.uid)
        if not may_give or not (gid in (SAME, file.gid) or identity.is_member(gid)):
            raise refuse(errno.EPERM)

    def _permit(self, notice: CallNotice, identity: Identity, folder: int, *, is_named: bool) -> None:
        """Modes are their owner's to change; a mode that is noted is no longer the file's."""
        path = notice.read_path(folder + 1) if is_named else b""
        mode = notice.arguments[folder + 2 if is_named else 1] & 0o7777
        place = _pick(notice, folder)
        if identity.is_root and MODE_ATTRIBUTE not in os.listxattr(self._name(notice.process, place, path)):
            return
        file = open_target(notice, place, path)
        try:
            if not self._mounts.has(notice, file.file) or stat.S_ISSOCK(file.mode):  # no image has sockets
                return
            if not identity.is_root and file.uid != identity.uid:
                raise refuse(errno.EPERM)
            file.note_mode(mode, mode)
        finally:
            file.close()

    # -- what is made and removed

    def _open(self, notice: CallNotice, identity: Identity, folder: int, flags: int, mode: int) -> GivenFile | None:
        """Open for writing: what is there must let its user; what is not there is made, and noted as the user's."""
        path, place = notice.read_path(folder + 1), _pick(notice, folder)
        try:
            file = open_target(notice, place, path, follows=not flags & os.O_NOFOLLOW)
        except FileNotFoundError:
            return self._make_file(notice, identity, place, path, flags, notice.arguments[mode])
        try:
            is_there = flags & os.O_EXCL and flags & os.O_CREAT
            if self._mounts.has(notice, file.file) and not is_there and not file.lets(identity, WRITE):
                raise refuse()
        finally:
            file.close()
        return None

    def _make_file(
        self, notice: CallNotice, identity: Identity, place: int, path: bytes, *numbers: int
    ) -> GivenFile | None:
        flags, mode = numbers
        parent, name = open_parent(notice, place, path)
        try:
            if not flags & os.O_CREAT or not self._mounts.has(notice, parent.file):
                return None
            if not parent.lets(identity, WRITE | EXECUTE):
                raise refuse()
            wanted = flags & _KEPT_FLAGS | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            umask = read_umask(notice.process)
            file = os.open(name, wanted, mode & 0o7777 & ~umask, dir_fd=parent.file)
            parent.note_new(name, identity)
            return GivenFile(file, is_private=bool(flags & os.O_CLOEXEC))
        except FileExistsError:
            return None  # a link that leads nowhere, or somebody was faster
        finally:
            parent.close()

    def _make_directory(self, notice: CallNotice, identity: Identity, folder: int) -> int | None:
        parent, name = open_parent(notice, _pick(notice, folder), notice.read_path(folder + 1))
        try:
            if not self._mounts.has(notice, parent.file) or os.access(name, os.F_OK, dir_fd=parent.file):
                return None
            if not parent.lets(identity, WRITE | EXECUTE):
                raise refuse()
            mode = notice.arguments[folder + 2] & 0o1777 & ~read_umask(notice.process)
            os.mkdir(name, mode, dir_fd=parent.file)
            parent.note_new(name, identity)
        finally:
            parent.close()
        return 0

    def _make_node(self, notice: CallNotice, identity: Identity, folder: int) -> int | None:
        """A device is an empty file with a note; a pipe is the kernel's to make."""
        mode, number = notice.arguments[folder + 2], notice.arguments[folder + 3] & 0xFFFFFFFF
        if mode & 0o170000 not in _DEVICES:
            return None if identity.is_root else self._make_pipe(notice, identity, folder, mode)
        if not identity.is_root or not number:  # 0:0 is how an overlay says that a file was deleted
            raise refuse(errno.EPERM)
        parent, name = open_parent(notice, _pick(notice, folder), notice.read_path(folder + 1))
        try:
            if not self._mounts.has(notice, parent.file):
                raise refuse(errno.EPERM, "device nodes cannot be made outside of the image's own file system")
            umask = read_umask(notice.process)
            parent.make_device(name, mode & ~umask, _join_device(number))
        finally:
            parent.close()
        return 0

    def _make_pipe(self, notice: CallNotice, identity: Identity, folder: int, mode: int) -> int | None:
        parent, name = open_parent(notice, _pick(notice, folder), notice.read_path(folder + 1))
        try:
            if not self._mounts.has(notice, parent.file):
                return None
            if not parent.lets(identity, WRITE | EXECUTE):
                raise refuse()
            os.mknod(name, mode & ~read_umask(notice.process), dir_fd=parent.file)
            if parent.note_new(name, identity):
                self._mark_named_notes()
        finally:
            parent.close()
        return 0

    def _make_link(self, notice: CallNotice, identity: Identity, folder: int, position: int) -> int | None:
        parent, name = open_parent(notice, _pick(notice, folder), notice.read_path(position))
        try:
            if not self._mounts.has(notice, parent.file) or os.path.lexists(parent.path + "/" + os.fsdecode(name)):
                return None
            if not parent.lets(identity, WRITE | EXECUTE):
                raise refuse()
            os.symlink(notice.read_path(0), name, dir_fd=parent.file)
            if parent.note_new(name, identity):
                self._mark_named_notes()
        finally:
            parent.close()
        return 0

    def _enter(self, notice: CallNotice, identity: Identity, folder: int, position: int) -> None:
        """A name is made in a directory."""
        parent, _ = open_parent(notice, _pick(notice, folder), notice.read_path(position))
        try:
            if self._mounts.has(notice, parent.file) and not parent.lets(identity, WRITE | EXECUTE):
                raise refuse()
        finally:
            parent.close()

    def _remove(self, notice: CallNotice, identity: Identity, folder: int, position: int) -> None:
        """A name is taken out of a directory."""
        parent, name = open_parent(notice, _pick(notice, folder), notice.read_path(position))
        try:
            if self._mounts.has(notice, parent.file) and not parent.lets_remove(identity, name):
                raise refuse()
        finally:
            parent.close()

    def _rename(self, notice: CallNotice, identity: Identity, old: tuple[int, int], new: tuple[int, int]) -> None:
        self._remove(notice, identity, *old)
        self._remove(notice, identity, *new)


def _is_noted_above(place: bytes) -> bool:
    """Whether the directory of a link or pipe says whose it is."""
    if has_attributes(os.lstat(place).st_mode):
        return False
    parent, _, name = place.rstrip(b"/").rpartition(b"/")
    return name_note(name) in os.listxattr(parent or b"/")


def _pick(notice: CallNotice, position: int) -> int:
    """The directory that a path begins in: an argument, or the current one for a call without it."""
    return notice.arguments[position] if position >= 0 else HERE


def _join_device(number: int) -> int:
    """The number of a device, of what mknod(2) takes."""
    return os.makedev(number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00)
