# SPDX-License-Identifier: BSD-3-Clause
"""Converted images: built once for everybody who asks, and handed out without a second copy where that is possible.

The user's file may be a hard link to ours. A record of size, time and inode stands beside each image; when somebody
changed it in place (signed it, say), the record does not fit any more and the image is dropped from the store.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from kedge.errors import FileProblem, OutputExists
from kedge.posix.files import (
    apply_umask,
    atomic_output,
    explained,
    refuse_existing,
    remove_abandoned,
    temporary_beside,
)
from kedge.store.layout import Layout, is_listed, sync_folder
from kedge.store.lease import Patience, acquire
from kedge.store.use import Use

Build = Callable[[BinaryIO], None]

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_COPY_PIECE = 64 << 20
_RECORD_LIMIT = 64 << 10
_IMAGE_MODE = 0o755  # as Apptainer's; the umask takes away from it


class Delivery(StrEnum):
    """How the user's file came about."""

    LINK = "hard link"
    CLONE = "reflink"
    COPY = "copy"


class Images:
    """The converted images of one store."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def path(self, key: str) -> Path:
        """Where the image with that key stands, if it is there."""
        return self._layout.image(key)

    def find(self, key: str) -> Path | None:
        """The image, if it is there and as it was built; one that was changed in place is dropped."""
        path = self.path(key)
        record = read_record(path)
        if record is None:
            return None
        try:
            status = path.stat()
        except OSError:
            return None
        if not is_unchanged(record, status):
            with contextlib.suppress(FileProblem):  # in a store that we may only read it just does not count
                self.drop(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(record_path(path))
        return path

    def drop(self, key: str) -> None:
        """Take the image out of the store; links to it elsewhere stay."""
        for path in (record_path(self.path(key)), self.path(key)):
            with contextlib.suppress(FileNotFoundError), explained(path):
                path.unlink(missing_ok=True)

    def build(self, key: str, build: Build, patience: Patience) -> Path:
        """The image, built by `build` unless it is there; of many processes that ask at once, one builds."""
        path = self.path(key)
        while (found := self.find(key)) is None:
            self._layout.folder("leases")
            lease = acquire(self._layout.lease(path.stem), self._layout.folder("tmp"), lambda: self._has(key), patience)
            if lease is not None:
                with lease:
                    self._layout.sweep()  # of a builder that was killed while we waited
                    return self._build_now(key, path, build)
        return found

    def _has(self, key: str) -> bool:
        return self.find(key) is not None or (is_listed(record_path(self.path(key))) and self.find(key) is not None)

    def _build_now(self, key: str, path: Path, build: Build) -> Path:
        folder = self._layout.folder("images")
        temporary = self._layout.temporary("build")
        try:
            with explained(temporary):
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _IMAGE_MODE)
            with explained(temporary), os.fdopen(descriptor, "w+b") as file:
                build(file)
                file.flush()
                os.fsync(file.fileno())
            with explained(path):
                status = temporary.stat()
                record_path(path).unlink(missing_ok=True)
                temporary.replace(path)
            sync_folder(folder)
            self._layout.write(record_path(path), _make_record(key, status))
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        return path

    def deliver(self, key: str, target: Path, *, force: bool = False, link: bool = True) -> Delivery | None:
        """Give the user the image as `target`, in one step; None when it is not in the store.

        A hard link where both are on one file system (unless `link` is false) and the permissions are those that a
        new file would get now, else shared blocks, else a copy.
        """
        with Use(self._layout, self.path(key).stem):
            found = self.find(key)
            if found is None:
                return None
            refuse_existing(target, force=force)
            remove_abandoned(target)
            fits = found.stat().st_mode & 0o777 == apply_umask(_IMAGE_MODE)  # another umask may have reigned then
            if link and fits and _link_file(found, target, force=force):
                return Delivery.LINK
            return copy_image(found, target, force=force)


def record_path(image: Path) -> Path:
    """The record that stands beside an image."""
    return image.with_suffix(".json")


def read_record(image: Path) -> dict[str, object] | None:
    """The record of an image; None when it is missing or damaged, and then the image does not count."""
    try:
        with record_path(image).open("rb") as file:
            record = json.loads(file.read(_RECORD_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def is_unchanged(record: dict[str, object], status: os.stat_result) -> bool:
    """Whether the image is the file that was recorded; ctime is no witness, because making a link changes it."""
    return (record.get("size"), record.get("mtime_ns"), record.get("inode")) == (
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
    )


def _make_record(key: str, status: os.stat_result) -> bytes:
    record = {"key": key, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
    return json.dumps(record).encode() + b"\n"


def _link_file(source: Path, target: Path, *, force: bool) -> bool:
    """Hard-link, replacing the target if `force`; False where it cannot be (other file system or owner)."""
    name = temporary_beside(target) if force else target
    try:
        os.link(source, name)
    except FileExistsError:
        raise OutputExists(
            f"{target} was created by somebody else meanwhile", hint="give --force to replace it"
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


def copy_image(source: Path, target: Path, *, force: bool) -> Delivery:
    """Copy a file within the kernel, sharing its blocks where the file system can."""
    with explained(source):
        file = source.open("rb", buffering=0)
    with file, atomic_output(target, mode=_IMAGE_MODE, force=force) as output:
        try:
            fcntl.ioctl(output.fileno(), _FICLONE, file.fileno())
            return Delivery.CLONE
        except OSError:
            _copy_content(file.fileno(), output.fileno(), os.fstat(file.fileno()).st_size)
        if os.fstat(output.fileno()).st_size != os.fstat(file.fileno()).st_size:
            raise FileProblem(f"{source} changed while it was copied", hint="try again")
    return Delivery.COPY


def _copy_content(source: int, target: int, size: int) -> None:
    """copy_file_range where it works, else sendfile; the latter knows all pairs of file systems."""
    done = 0
    use_range = True
    while done < size:
        try:
            if use_range:
                count = os.copy_file_range(source, target, min(_COPY_PIECE, size - done), done, done)
            else:
                os.lseek(target, done, os.SEEK_SET)
                count = os.sendfile(target, source, done, min(_COPY_PIECE, size - done))
        except OSError as problem:
            if not use_range or problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            use_range = False
            continue
        if count == 0 and not use_range:
            return
        use_range = use_range and count > 0  # some kernels answer 0 for special file systems
        done += count
