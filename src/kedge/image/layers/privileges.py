# SPDX-License-Identifier: BSD-3-Clause
"""What only root may do to unpacked files: owners, devices, security attributes. One object for each case."""

from __future__ import annotations

import errno
import os
from typing import Protocol

from kedge.base.progress import Progress
from kedge.base.tree import Node, NodeKind
from kedge.system.confined_paths import name_in

_REFUSALS = frozenset((errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSPC, errno.E2BIG, errno.ERANGE))
_DEVICE_TYPES = {NodeKind.BLOCK_DEVICE: 0o060000, NodeKind.CHARACTER_DEVICE: 0o020000}


class Privileges(Protocol):
    """How metadata is put on a file `name` in `folder`; what cannot be done is left out, with one warning."""

    def set_owner(self, folder: int, name: bytes, node: Node) -> None:
        """Give the file to its owner, before modes are set: changing owners clears setuid bits."""
        ...

    def make_device(self, folder: int, name: bytes, node: Node) -> None:
        """Make a device node, or what stands for it."""
        ...

    def set_xattrs(self, folder: int, name: bytes, node: Node) -> None:
        """Set extended attributes, after owners: changing owners clears file capabilities."""
        ...


class _UserPrivileges:
    """An ordinary user's: files stay the user's own, devices become empty files."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._said: set[str] = set()

    def say_once(self, message: str) -> None:
        """Tell of something left out, the first time it happens."""
        if message not in self._said:
            self._said.add(message)
            self._progress.note(message)

    def set_owner(self, folder: int, name: bytes, node: Node) -> None:
        """Do nothing: all files are the user's."""

    def make_device(self, folder: int, name: bytes, node: Node) -> None:  # noqa: ARG002 - the protocol's
        """An empty file holds the name, so that the device can be bound over it."""
        self.say_once("devices in the image became empty files: only root can make devices")
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder))

    def set_xattrs(self, folder: int, name: bytes, node: Node) -> None:
        """User attributes; others are left out."""
        for key, value in node.xattrs:
            if not key.startswith(b"user."):
                self.say_once("attributes such as file capabilities were left out: only root can set them")
                continue
            self._set_xattr(folder, name, key, value)

    def _set_xattr(self, folder: int, name: bytes, key: bytes, value: bytes) -> None:
        try:
            os.setxattr(name_in(folder, name), key, value, follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in _REFUSALS:
                raise
            prefix = key.partition(b".")[0].decode("ascii", "replace")
            self.say_once(f"some extended attributes ({prefix}.*) were left out: this file system does not take them")


class _RootPrivileges(_UserPrivileges):
    """Root's: everything, where the namespace and the file system allow it."""

    def set_owner(self, folder: int, name: bytes, node: Node) -> None:
        """Owner and group as the image says; an id that is not mapped in this user namespace is left out."""
        try:
            os.chown(name, node.uid, node.gid, dir_fd=folder, follow_symlinks=False)
        except OSError as problem:
            if problem.errno not in (errno.EPERM, errno.EINVAL):
                raise
            self.say_once("some owners were left out: these user ids do not exist in this user namespace")

    def make_device(self, folder: int, name: bytes, node: Node) -> None:
        """A real device node, where mknod is allowed."""
        try:
            os.mknod(name, _DEVICE_TYPES[node.kind] | 0o600, node.rdev, dir_fd=folder)
        except PermissionError:
            super().make_device(folder, name, node)

    def set_xattrs(self, folder: int, name: bytes, node: Node) -> None:
        """Set all attributes."""
        for key, value in node.xattrs:
            self._set_xattr(folder, name, key, value)


def make_special(privileges: Privileges, folder: int, name: bytes, node: Node) -> None:
    """Make a pipe, a socket or a device."""
    if node.kind is NodeKind.FIFO:
        os.mkfifo(name, 0o600, dir_fd=folder)
    elif node.kind is NodeKind.SOCKET:
        os.mknod(name, 0o140600, dir_fd=folder)
    else:
        privileges.make_device(folder, name, node)


def choose_privileges(progress: Progress) -> Privileges:
    """The object for whoever runs this."""
    return _RootPrivileges(progress) if os.geteuid() == 0 else _UserPrivileges(progress)


def make_mode_usable(kind: NodeKind, mode: int) -> int:
    """A mode as it is on a node: readable for its owner, without setuid and setgid, which mean the wrong user there."""
    return mode & 0o1777 | (0o500 if kind is NodeKind.DIRECTORY else 0o400)
