# SPDX-License-Identifier: BSD-3-Clause
"""Bytes on their way between the cache and the user's files: shared blocks, copies that are hashed, links, moves."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import stat
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypeVar

from kedge.errors import FileProblem, OutputExists
from kedge.image.store.blobs import hash_open, new_hash
from kedge.image.store.layout import sync_folder
from kedge.system.files import (
    atomic_output,
    explained,
    publish,
    refuse_existing,
    remove_abandoned,
    temporary_beside,
)

Result = TypeVar("Result")

IMAGE_MODE = 0o755  # as Apptainer's; the umask takes away from it
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_PIECE = 8 << 20  # large enough that a thread for each costs nothing
_DEFAULT_ACL = "system.posix_acl_default"


class Delivery(StrEnum):
    """How the user's file came about."""

    LINK = "hard link"
    CLONE = "reflink"
    MOVE = "move"
    COPY = "copy"


class _Different(Exception):
    """The bytes are not those that were recorded."""


class _NotCloned(Exception):
    """The file system cannot share blocks, or not between these two places."""


def run_beside(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start the work in a thread; what is returned waits for it. Where no thread can be had, the waiting does it."""
    results: list[Result] = []

    def run() -> None:
        with contextlib.suppress(Exception):  # done again, and raised, by who waits
            results.append(work())

    thread = threading.Thread(target=run, name="kedge-hash", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # RLIMIT_NPROC or the pids limit of the cgroup
        return work

    def wait() -> Result:
        thread.join()
        return results[0] if results else work()

    return wait


def copy_hashed(source: BinaryIO, target: BinaryIO) -> str:
    """Copy a file as long as it is now; the SHA-256 of what was written, in hexadecimal."""
    hasher = new_hash("sha256")
    left = os.fstat(source.fileno()).st_size
    while piece := source.read(min(_PIECE, left)):
        hashed = run_beside(functools.partial(hasher.update, piece))
        target.write(piece)
        hashed()
        left -= len(piece)
    return hasher.hexdigest()


def copy_image(
    source: BinaryIO, target: Path, digest: str, *, force: bool, is_trusted: Callable[[], bool]
) -> Delivery | None:
    """Give the user the bytes of an open file as a file of his own; None, and no file, when the digest is another.

    Copied bytes are hashed on the way. Of shared blocks `is_trusted` says afterwards whether they need that.
    """
    try:
        with atomic_output(target, mode=IMAGE_MODE, force=force) as output:
            if _share_blocks(source, output):
                how = Delivery.CLONE
                actual = digest if is_trusted() else hash_open(output.fileno(), "sha256")
            else:
                how, actual = Delivery.COPY, copy_hashed(source, output)
            if actual != digest:
                raise _Different
    except _Different:
        return None
    return how


def clone_image(source: BinaryIO, target: Path, *, force: bool) -> bool:
    """Clone an image by shared blocks or not at all; whether that worked."""
    try:
        with atomic_output(target, mode=IMAGE_MODE, force=force) as output:
            if not _share_blocks(source, output):
                raise _NotCloned
    except _NotCloned:
        return False
    return True


def _share_blocks(source: BinaryIO, target: BinaryIO) -> bool:
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def is_same_device(file: Path, folder: Path) -> bool:
    """Whether the two are on one file system."""
    with explained(folder):
        return file.stat().st_dev == folder.stat().st_dev


def move_image(temporary: Path, target: Path, *, force: bool) -> bool:
    """Give the file to the user without a copy; False where a file made over there would be another.

    A directory may hand its group and its ACL to what is made in it; a file that is moved there does not get them. Two
    mounts of one file system do not let files cross.
    """
    refuse_existing(target, force=force)
    remove_abandoned(target)
    if not _adopt_group(temporary, target.parent) or _has_default_acl(target.parent):
        return False
    try:
        publish(temporary, target, force=force)
    except FileProblem as problem:
        if problem.context.get("errno") != errno.errorcode[errno.EXDEV]:
            raise
        return False
    sync_folder(target.parent)
    return True


def _adopt_group(file: Path, folder: Path) -> bool:
    above, own = folder.stat(), file.stat()
    if not above.st_mode & stat.S_ISGID or above.st_gid == own.st_gid:
        return True
    try:
        os.chown(file, -1, above.st_gid)
    except OSError:
        return False
    return True


def _has_default_acl(folder: Path) -> bool:
    try:
        return bool(os.getxattr(folder, _DEFAULT_ACL))
    except OSError:
        return False


def link_file(source: Path, target: Path, *, force: bool) -> bool:
    """Hard-link, replacing the target if `force`; False where it cannot be (other file system or owner)."""
    refuse_existing(target, force=force)
    remove_abandoned(target)
    name = temporary_beside(target) if force else target
    try:
        os.link(source, name)
    except FileExistsError:
        raise OutputExists(
            f"{target} was created by another process meanwhile", hint="give --force to replace it"
        ) from None
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            with explained(target):
                raise
        return False
    if force:
        try:
            with explained(target):
                name.replace(target)
        finally:
            name.unlink(missing_ok=True)  # also after success: rename() of two links to one file leaves both names
    return True
