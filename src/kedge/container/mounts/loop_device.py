# SPDX-License-Identifier: BSD-3-Clause
"""Mounts by the kernel of file systems that are in files, for real root: a loop device that goes with its mount."""

from __future__ import annotations

import errno
import os
import stat

from kedge.system import libc

_CONTROL = "/dev/loop-control"
_ATTEMPTS = 50  # others take free devices, too
_SECTOR = 512
_INFO_SIZE = 232  # struct loop_info64 of linux/loop.h
_RESERVED = bytes(64)


def mount_loop(file: str, offset: int, size: int, target: str, kind: str, *, writable: bool = False) -> None:
    """Mount the file system of `size` bytes at `offset` of a file; raises OSError."""
    if offset % _SECTOR:
        raise OSError(
            errno.EINVAL, f"the file system begins at byte {offset}, and the kernel needs a multiple of {_SECTOR}"
        )
    backing = os.open(file, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        number, device = attach(backing, offset, size, writable=writable)
    finally:
        os.close(backing)
    flags = libc.MS_NOSUID | libc.MS_NODEV | (0 if writable else libc.MS_RDONLY)
    options = "errors=remount-ro" if kind.startswith("ext") else ""
    try:
        libc.mount(f"/dev/loop{number}", target, kind, flags, options)
    except OSError as problem:
        if writable or not options or problem.errno != errno.EROFS:
            raise
        # its last user was killed, and what is in its journal cannot be written down here: it is read as it is
        libc.mount(f"/dev/loop{number}", target, kind, flags, f"{options},norecovery")
    finally:
        os.close(device)  # from now on the mount holds it, or nobody


def attach(backing: int, offset: int, size: int, *, writable: bool) -> tuple[int, int]:
    """A free loop device, attached to the open file; its number, and a descriptor that holds it."""
    import fcntl  # late: only root comes here

    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            number = fcntl.ioctl(control, libc.LOOP_CTL_GET_FREE)
            device = _open_device(number, writable=writable)
            try:
                _configure(device, backing, _make_info(offset, size, writable=writable))
                return number, device
            except OSError as problem:
                os.close(device)
                if problem.errno not in (errno.EBUSY, errno.EAGAIN):
                    raise
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no free loop device: other processes took each one")


def _open_device(number: int, *, writable: bool) -> int:
    """The device node; made where the node's /dev does not make it by itself."""
    path = f"/dev/loop{number}"
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        try:
            os.mknod(path, stat.S_IFBLK | 0o660, os.makedev(7, number))
        except FileExistsError:  # it does, a moment later
            return os.open(path, flags)
        return os.open(path, flags)


def _configure(device: int, backing: int, info: bytes) -> None:
    import fcntl  # late: only root comes here

    try:
        fcntl.ioctl(device, libc.LOOP_CONFIGURE, backing.to_bytes(8, "little") + info + _RESERVED)
        return
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTTY):
            raise
    # before Linux 5.8 it takes two steps
    fcntl.ioctl(device, libc.LOOP_SET_FD, backing)
    try:
        fcntl.ioctl(device, libc.LOOP_SET_STATUS64, info)
    except OSError:
        fcntl.ioctl(device, libc.LOOP_CLR_FD, 0)
        raise


def _make_info(offset: int, size: int, *, writable: bool) -> bytes:
    """struct loop_info64: where in the file, how much of it, and that the device goes with its last user."""
    flags = libc.LO_FLAGS_AUTOCLEAR | (0 if writable else libc.LO_FLAGS_READ_ONLY)
    numbers = bytes(24) + offset.to_bytes(8, "little") + size.to_bytes(8, "little")
    return (numbers + bytes(12) + flags.to_bytes(4, "little")).ljust(_INFO_SIZE, b"\0")
