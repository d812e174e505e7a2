# SPDX-License-Identifier: BSD-3-Clause
"""Calls of the C library that Python does not offer; the only module that uses ctypes."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

USRQUOTA = 0
GRPQUOTA = 1
_Q_GETQUOTA = 0x800007  # linux/quota.h; answered for ext4, XFS and all others with kernel quotas
_SYS_QUOTACTL_FD = 443  # the same number on all architectures (Linux 5.14)
_M_ARENA_MAX = -8  # malloc.h of glibc
_QIF_BLIMITS = 1
_QIF_SPACE = 2


class _DiskQuota(ctypes.Structure):
    """struct if_dqblk of linux/quota.h: limits in blocks of 1 KiB, usage in bytes."""

    _fields_ = (
        ("block_hard_limit", ctypes.c_uint64),
        ("block_soft_limit", ctypes.c_uint64),
        ("current_space", ctypes.c_uint64),
        ("inode_hard_limit", ctypes.c_uint64),
        ("inode_soft_limit", ctypes.c_uint64),
        ("current_inodes", ctypes.c_uint64),
        ("block_time", ctypes.c_uint64),
        ("inode_time", ctypes.c_uint64),
        ("valid", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes used and allowed; a limit of 0 is none."""

    used: int
    limit: int


def get_quota(folder: int, device: str, kind: int, identity: int) -> Quota | None:
    """The disk quota of a user or group on the file system of an open folder; raises OSError where there is none.

    `device` is used on kernels that do not know quotactl_fd.
    """
    library = ctypes.CDLL(None, use_errno=True)
    answer = _DiskQuota()
    command = ctypes.c_uint((_Q_GETQUOTA << 8) | kind)
    status = library.syscall(
        ctypes.c_long(_SYS_QUOTACTL_FD), ctypes.c_uint(folder), command, ctypes.c_uint(identity), ctypes.byref(answer)
    )
    if status != 0 and hasattr(library, "quotactl"):
        status = library.quotactl(command, os.fsencode(device), ctypes.c_int(identity), ctypes.byref(answer))
    if status != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    if not answer.valid & _QIF_BLIMITS or not answer.valid & _QIF_SPACE:
        return None
    limit = answer.block_hard_limit or answer.block_soft_limit
    return Quota(answer.current_space, limit << 10)


def limit_arenas(count: int) -> None:
    """Let all threads share `count` arenas of malloc, of which each reserves 128 MiB of addresses; glibc only."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(ctypes.c_int(_M_ARENA_MAX), ctypes.c_int(count))
