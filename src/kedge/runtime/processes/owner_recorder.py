# SPDX-License-Identifier: BSD-3-Clause
"""Remembers to whom a step of a build gave its files, where root is the only user there is.

`chown app /srv/app` changes nothing on the disk then; but the image is to say that the directory is app's. A seccomp
filter leaves such calls to a process beside the step, which writes the numbers into an extended attribute of the file:
that goes where the file goes, and an overlay copies the file into the step's layer, as a change of owner would have.
Links cannot have the attribute, and a file of the image's that is given to root keeps the owner the image names.

The process has the container's root as its root, no file of the host is open in it, and it belongs to the user
namespace above the step's, out of its reach.
"""

from __future__ import annotations

import errno
import os
import select

from kedge.model.owner_attribute import OWNER_ATTRIBUTE, decode_owner, encode_owner
from kedge.posix import libc
from kedge.posix.call_notices import CallNotice, NoticeFile
from kedge.posix.constants import PR_SET_DUMPABLE
from kedge.posix.spawn import close_all, fork_detached, list_inherited, list_private
from kedge.runtime.container_view import name_descriptor, open_inside
from kedge.runtime.processes.emulated_calls import OWNER_CALLS

_UNCHANGED = 0xFFFFFFFF
_SETS_IDS = 0o6000  # setuid and setgid
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH


class OwnerRecorder:
    """To be made in the process that becomes the step's program, while the host's tree is the root."""

    def __init__(self, machine: str, image_root: str) -> None:
        self._image_root = image_root  # where the image is in the container
        self._calls = OWNER_CALLS[machine]
        self._root_mounts: dict[int, bytes] = {}  # by mount namespace
        self._socket, other = libc.pair_sockets()
        if fork_detached():
            self._record_all(other)
        os.close(other)

    def filter_calls(self, program: bytes) -> bool:
        """Put a filter with notices on this process and all that it starts; False where the kernel has none (5.0)."""
        try:
            file = libc.filter_calls_with_notices(program)
        except OSError:
            return False
        else:
            libc.send_descriptor(self._socket, file)
            os.close(file)
            return True
        finally:
            os.close(self._socket)

    def _record_all(self, socket: int) -> None:
        """The process beside the step."""
        try:
            _let_go(socket, self._socket)
            notices = NoticeFile(_wait_for_descriptor(socket))
            os.close(socket)
            while (notice := notices.receive()) is not None:
                notices.answer(notice, self._record(notice))
        finally:
            os._exit(0)

    def _record(self, notice: CallNotice) -> int:
        """Note one change of owner; returns the error number that the call ends with."""
        try:
            file = _open_target(notice, self._calls[notice.number])
        except OSError as problem:
            return problem.errno if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF) else 0
        except Exception:  # whatever it is, the step goes on
            return 0
        try:
            first = 2 if self._calls[notice.number] == "fchownat" else 1
            if _find_mount(file) == self._find_root_mount(
                notice.process
            ):  # else it is in a bind, and no part of a layer
                numbers = (number & 0xFFFFFFFF for number in notice.arguments[first : first + 2])
                _drop_privileges(name_descriptor(file))
                _note_owner(name_descriptor(file), *numbers)
        except OSError:
            pass  # a file system without such attributes, or a kind of file that has none
        finally:
            os.close(file)
        return 0

    def _find_root_mount(self, process: int) -> bytes:
        """The mount of the image, as a caller has it: it has another number in each mount namespace."""
        namespace = os.stat(f"/proc/{process}/ns/mnt").st_ino
        if namespace not in self._root_mounts:
            root = os.open(f"/proc/{process}/root{self._image_root}", os.O_PATH | os.O_CLOEXEC)
            self._root_mounts[namespace] = _find_mount(root)
            os.close(root)
        return self._root_mounts[namespace]


def _find_mount(file: int) -> bytes:
    """The number of the mount that an open file is in."""
    info = os.open(f"/proc/self/fdinfo/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(info, 4096).partition(b"mnt_id:")[2].split()[0]
    finally:
        os.close(info)


def _let_go(kept: int, other: int) -> None:
    """Keep nothing of the host's, and let nobody look in."""
    libc.control_process(PR_SET_DUMPABLE, 0)
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(empty, number, inheritable=False)
    close_all([file for file in (*list_inherited(), *list_private()) if file != kept])
    close_all([other])


def _wait_for_descriptor(socket: int) -> int:
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    waiting.poll()
    return libc.fetch_descriptor(socket)


def _open_target(notice: CallNotice, call: str) -> int:
    """The file that a call is about; raises OSError."""
    if call == "fchown":
        return notice.open_file(notice.arguments[0])
    position = 1 if call == "fchownat" else 0
    path = notice.read_path(position)
    flags = notice.arguments[4] if call == "fchownat" else 0
    start = notice.arguments[0] if call == "fchownat" else 0xFFFFFF9C  # AT_FDCWD
    if not path and flags & _EMPTY_PATH:
        return notice.open_file(start)
    is_link = call == "lchown" or bool(flags & _NO_FOLLOW)
    if path.startswith(b"/"):
        return _open_absolute(notice, os.fsdecode(path), is_link=is_link)
    folder = notice.open_file(start)
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if is_link else 0), dir_fd=folder)
    finally:
        os.close(folder)


def _open_absolute(notice: CallNotice, path: str, *, is_link: bool) -> int:
    """What a path from the caller's root leads to, or the link itself that is at its end."""
    root = os.open(f"/proc/{notice.process}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        if not is_link:
            return open_inside(root, path)
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = open_inside(root, parent or "/")
    finally:
        os.close(root)
    try:
        return os.open(name or ".", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def _drop_privileges(path: str) -> None:
    """Take setuid bits and capabilities from a file, as the kernel does when one is given away, be it to its owner."""
    if os.stat(path).st_mode & _SETS_IDS or "security.capability" in os.listxattr(path):
        os.chown(path, -1, -1)  # the kernel's own rules, without a change of owner


def _note_owner(path: str, uid: int, gid: int) -> None:
    """Write the numbers; -1 leaves the one that is there, and a file that is root's without a note needs none."""
    if _UNCHANGED not in (uid, gid) and (uid, gid) != (0, 0):
        os.setxattr(path, OWNER_ATTRIBUTE, encode_owner(uid, gid))
        return
    try:
        known = decode_owner(os.getxattr(path, OWNER_ATTRIBUTE)) or (0, 0)
    except OSError:
        known = 0, 0
    wanted = (known[0] if uid == _UNCHANGED else uid), (known[1] if gid == _UNCHANGED else gid)
    if wanted != known:
        os.setxattr(path, OWNER_ATTRIBUTE, encode_owner(*wanted))
