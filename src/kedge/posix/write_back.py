# SPDX-License-Identifier: BSD-3-Clause
"""Begins to write a file to the disk while more of it is made, so that the fsync at its end has little to wait for."""

from __future__ import annotations

from kedge.posix import c_types

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: begin, and do not wait

_library = c_types.open_own_library()


def begin_writing(descriptor: int, offset: int, size: int) -> None:
    """Let the kernel write this stretch now; where it cannot (a pipe, an odd file system), fsync will do all of it."""
    if hasattr(_library, "sync_file_range"):
        place, length = c_types.c_uint64(offset), c_types.c_uint64(size)
        _library.sync_file_range(c_types.c_int(descriptor), place, length, c_types.c_uint(_SYNC_FILE_RANGE_WRITE))
