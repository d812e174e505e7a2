# SPDX-License-Identifier: BSD-3-Clause
"""Converted images: built once for everybody who asks, checked whenever one is handed out, kept twice nowhere.

What the user gets is his own: no file of his shares bytes that can be written with the cache, unless he asks for hard
links. Where the file system can share blocks, both have the image. Where it cannot, and both would be on one file
system, the user has it and the cache a record (`deliveries`); what else needs it copies from there, or builds it again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import frozen, replace
from kedge.base.setting_values import LinkMode
from kedge.errors import FileProblem, KedgeError
from kedge.image.store import file_transfer
from kedge.image.store.blobs import hash_file, hash_open
from kedge.image.store.deliveries import Deliveries, DeliveryRecord, open_delivered
from kedge.image.store.file_transfer import IMAGE_MODE, Delivery
from kedge.image.store.image_records import ImageRecord, record_path
from kedge.image.store.layout import Layout, is_listed, sync_folder
from kedge.image.store.lease import Lease, Patience, acquire
from kedge.image.store.use_marks import Use
from kedge.system.files import apply_umask, explained

Build = Callable[[BinaryIO], None]


@frozen
class Handing:
    """Where the user wants an image, and how."""

    target: Path
    force: bool = False
    mode: LinkMode = LinkMode.AUTO


@frozen
class _Fresh:
    """An image that was built and has no name yet."""

    key: str
    path: Path
    digest: str
    size: int


class Images:
    """The converted images of one cache; `warn` is told of those that somebody changed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.deliveries = Deliveries(layout)
        self.warn: Callable[[str], None] = lambda _: None
        self._refused: set[Path] = set()  # files of users that are not what they were, as far as this process saw
        self._hashed: dict[Path, tuple[int, ...]] = {}  # images of the cache that this process has read as they are

    def path(self, key: str) -> Path:
        """Where the image with that key stands, if it is there."""
        return self._layout.image(key)

    def find(self, key: str) -> Path | None:
        """The image, if it is in the cache and as it was built; one that was changed in place is dropped."""
        path = self.path(key)
        if not self._check(path):
            return None
        with contextlib.suppress(OSError):
            os.utime(record_path(path))
        return path

    def find_at_hand(self, key: str) -> Path | None:
        """A file that should have the image: the cache's, or else one of the user's, which may have changed since."""
        return self.find(key) or next((path for path, _, _ in self._open_delivered(key)), None)

    def find_delivered(self, key: str) -> Path | None:
        """A file of the user's that has the image, by a hash of all its bytes; for a look, as it may change at once."""
        for path, file, digest in self._open_delivered(key):
            if hash_open(file.fileno(), "sha256") == digest:
                return path
        return None

    def drop(self, key: str) -> None:
        """Take the image out of the cache; files of users stay."""
        self._remove(self.path(key))

    def drop_faulty(self, path: Path, fault: str) -> None:
        """Take an image out that has its bytes, and was written wrongly."""
        record = ImageRecord.read(path)
        self.warn(f"the cached image '{record.key if record is not None else path.name}' was written wrongly: {fault}")
        with contextlib.suppress(KedgeError):
            self._remove(path)

    def verify(self, path: Path) -> bool:
        """Hash an image of the cache, whatever its record says of its times; a changed one is dropped."""
        return self._check(path, is_thorough=True)

    def verify_delivered(self, record: DeliveryRecord) -> dict[Path, bool]:
        """Hash the files that users got: whether they are as they were. Records forget the changed and the vanished."""
        states = {}
        for path in record.paths:
            is_whole = _hash_delivered(path, record.size) == record.digest
            if not is_whole:
                self.deliveries.forget(record.key, path)
            if is_whole or os.path.lexists(path):
                states[path] = is_whole
        return states

    def _check(self, path: Path, *, is_thorough: bool = False) -> bool:
        record = ImageRecord.read(path)
        try:
            status = path.lstat()
        except OSError:
            return False
        if record is None and not is_thorough:  # its builder may be about to write it
            return False
        seen = (status.st_ino, status.st_size, status.st_ctime_ns, status.st_nlink)
        if record is not None and not is_thorough and (record.is_witnessed(status) or self._hashed.get(path) == seen):
            return True
        if record is None or not _has_bytes(path, status, record):
            self._refuse(path, record)
            return False
        self._hashed[path] = seen
        if not record.is_witnessed(status):
            with contextlib.suppress(KedgeError):  # in a cache that we may only read it is hashed each time
                replace(record, is_linked=record.is_linked or status.st_nlink > 1).write(self._layout, path, status)
        return True

    def _refuse(self, path: Path, record: ImageRecord | None) -> None:
        name = record.key if record is not None else path.name
        why = "has been changed since it was made"
        if record is None or not record.digest:
            why = "has no checksum (an older kedge made it)"
        self.warn(f"the cached image '{name}' {why}: kedge does not use it and makes it again")
        with contextlib.suppress(KedgeError):  # in a cache that we may only read it just does not count
            self._remove(path)

    def _remove(self, image: Path) -> None:
        for path in (record_path(image), image):
            with contextlib.suppress(FileNotFoundError), explained(path):
                path.unlink(missing_ok=True)

    # -- building

    def build(self, key: str, build: Build, patience: Patience) -> Path:
        """The image in the cache, built by `build` unless it is there; of many processes that ask, one builds."""
        while (image := self.find(key)) is None:
            lease = self._lease(key, lambda: self.find(key) is not None, patience)
            if lease is not None:
                with lease, self._build_now(key, build) as fresh:
                    return self._keep(fresh)
        return image

    def build_into(self, key: str, build: Build, wish: Handing, patience: Patience) -> Delivery:
        """The image as the user's file, built by `build` unless it is at hand."""
        while (delivered := self.deliver(key, wish)) is None:
            lease = self._lease(key, lambda: self.find_at_hand(key) is not None, patience)
            if lease is not None:
                with lease, self._build_now(key, build) as fresh:
                    return self._hand_over(fresh, wish)
        return delivered

    def _lease(self, key: str, is_done: Callable[[], bool], patience: Patience) -> Lease | None:
        self._layout.folder("leases")
        path = self.path(key)
        records = (record_path(path), self.deliveries.path(key))
        # listing asks the server, where a client may remember for a minute that there is no such file
        return acquire(
            self._layout.lease(path.stem),
            self._layout.folder("tmp"),
            lambda: is_done() or (any(is_listed(record) for record in records) and is_done()),
            patience,
        )

    @contextlib.contextmanager
    def _build_now(self, key: str, build: Build) -> Iterator[_Fresh]:
        self._layout.sweep()  # of a builder that was killed while we waited
        temporary = self._layout.temporary("build")
        try:
            with explained(temporary):
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, IMAGE_MODE)
            with explained(temporary), os.fdopen(descriptor, "w+b") as file:
                if not self._restore(key, file):
                    build(file)
                file.flush()
                hashed = file_transfer.run_beside(lambda: hash_file(temporary, "sha256"))
                os.fsync(file.fileno())
                digest, size = hashed(), os.fstat(file.fileno()).st_size
            yield _Fresh(key, temporary, digest, size)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _restore(self, key: str, file: BinaryIO) -> bool:
        """Copy what a user was given into an empty file; False, and it is empty again, where nobody has it any more."""
        for path, source, digest in self._open_delivered(key):
            if file_transfer.copy_hashed(source, file) == digest:
                return True
            self._give_up(key, path)
            file.seek(0)
            file.truncate()
        return False

    def _keep(self, fresh: _Fresh) -> Path:
        path, folder = self.path(fresh.key), self._layout.folder("images")
        with explained(path):
            record_path(path).unlink(missing_ok=True)
            fresh.path.replace(path)
        sync_folder(folder)
        ImageRecord(fresh.key, fresh.digest, fresh.size).write(self._layout, path, path.stat())
        return path

    # -- delivering

    def deliver(self, key: str, wish: Handing) -> Delivery | None:
        """Give the user the image as a file of his own, in one step; None when it is not at hand."""
        with Use(self._layout, self.path(key).stem):
            return self._deliver_kept(key, wish) or self._deliver_copy(key, wish)

    def _hand_over(self, fresh: _Fresh, wish: Handing) -> Delivery:
        """Give away what was just built: by shared blocks both have it; else one copy is enough for one file system."""
        if wish.mode is not LinkMode.AUTO or not file_transfer.is_same_device(fresh.path, wish.target.parent):
            self._keep(fresh)
            delivered = self._deliver_kept(fresh.key, wish)
            if delivered is None:
                raise FileProblem(
                    f"the image for {wish.target} disappeared from the cache {self._layout.root}", hint="try again"
                )
            return delivered
        with fresh.path.open("rb", buffering=0) as file:
            if file_transfer.clone_image(file, wish.target, force=wish.force):
                self._keep(fresh)
                return Delivery.CLONE
            how: Delivery | None = Delivery.MOVE
            if not file_transfer.move_image(fresh.path, wish.target, force=wish.force):
                how = file_transfer.copy_image(
                    file, wish.target, fresh.digest, force=wish.force, is_trusted=lambda: True
                )
        if how is None:
            raise FileProblem(f"{fresh.path} changed while it was copied", hint="try again")
        self.deliveries.note(DeliveryRecord(fresh.key, fresh.digest, fresh.size, (wish.target,)))
        return how

    def _deliver_kept(self, key: str, wish: Handing) -> Delivery | None:
        path = self.path(key)
        if wish.mode is LinkMode.HARDLINK and self._deliver_link(key, wish):
            return Delivery.LINK
        record = ImageRecord.read(path)
        try:
            file = path.open("rb", buffering=0)
        except OSError:
            return None
        if record is None:
            file.close()
            return None
        with file:
            how = file_transfer.copy_image(
                file,
                wish.target,
                record.digest,
                force=wish.force,
                is_trusted=lambda: record.is_witnessed(os.fstat(file.fileno())),
            )
        if how is None:
            self._refuse(path, record)
        return how

    def _deliver_link(self, key: str, wish: Handing) -> bool:
        image = self.find(key)
        if image is None:
            return False
        status = image.stat()
        if stat.S_IMODE(status.st_mode) != apply_umask(IMAGE_MODE):  # another umask may have reigned then
            return False
        record = ImageRecord.read(image)
        try:
            if record is not None:  # first, so that whatever happens it is hashed from now on
                replace(record, is_linked=True).write(self._layout, image, status)
        except KedgeError:  # a cache that we may only read
            return False
        return file_transfer.link_file(image, wish.target, force=wish.force)

    def _deliver_copy(self, key: str, wish: Handing) -> Delivery | None:
        for path, source, digest in self._open_delivered(key):
            size = os.fstat(source.fileno()).st_size
            how = file_transfer.copy_image(source, wish.target, digest, force=wish.force, is_trusted=lambda: False)
            if how is not None:
                self.deliveries.note(DeliveryRecord(key, digest, size, (wish.target,)))
                return how
            self._give_up(key, path)
        return None

    def _open_delivered(self, key: str) -> Iterator[tuple[Path, BinaryIO, str]]:
        """The files of users that may have the image, open, with the digest that it had."""
        record = self.deliveries.read(key)
        for path in record.paths if record is not None else ():
            if record is None or path in self._refused:
                continue
            file = open_delivered(path, record.size)
            if file is not None:
                with file:
                    yield path, file, record.digest

    def _give_up(self, key: str, path: Path) -> None:
        self.warn(f"{path} has been changed since kedge delivered it: kedge does not copy it and makes the image again")
        self._refused.add(path)
        self.deliveries.forget(key, path)


def _hash_delivered(path: Path, size: int) -> str:
    """The SHA-256 of a user's file; empty when it is no regular file of that size."""
    file = open_delivered(path, size)
    if file is None:
        return ""
    with file:
        return hash_open(file.fileno(), "sha256")


def _has_bytes(path: Path, status: os.stat_result, record: ImageRecord) -> bool:
    """Whether a file of the cache has the recorded bytes, by reading them."""
    is_file = stat.S_ISREG(status.st_mode) and status.st_size == record.size
    return is_file and bool(record.digest) and hash_file(path, "sha256") == record.digest
