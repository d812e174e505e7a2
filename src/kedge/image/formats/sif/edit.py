# SPDX-License-Identifier: BSD-3-Clause
"""Changes to an existing SIF file: a changed copy takes the old one's name in one step.

Never in place: an image may have other names (hard links from the cache), a container may be running from it, and a
crash must leave the old file or the new one. File systems that can share blocks between copies make this cheap.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import replace
from kedge.errors import FileProblem, UnsupportedFormat, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import (
    ARCHITECTURE_CODES,
    DESCRIPTOR,
    FILE_MODE,
    PARTITION_EXTRA,
    DataType,
    Header,
    PartitionType,
    SifDescriptor,
)
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.sif.writer import SifBuilder
from kedge.system.files import atomic_output, copy_range, explained

NO_TIME = -62_135_596_800  # the zero of Go's times, the year 1, in seconds
Ranges = list[tuple[int, int]]


def append_object(path: Path, item: DataObject, *, now: int | None = None) -> SifDescriptor:
    """Add an object to the file: first free slot, data behind the last object."""
    return append_objects(path, [item], now=now)[0]


def append_objects(path: Path, items: Iterable[DataObject], *, now: int | None = None) -> list[SifDescriptor]:
    """Add several objects in one step: all of them or none."""
    with _editing(path) as edit:
        return [edit.append(item, edit.clock(now)) for item in items]


def delete_object(path: Path, identifier: int, *, now: int | None = None) -> SifDescriptor:
    """Remove an object; its bytes are not copied, and the file is shortened where nothing follows them."""
    with _editing(path) as edit:
        return edit.delete(identifier, edit.clock(now))


def set_primary(path: Path, identifier: int, *, now: int | None = None) -> SifDescriptor:
    """Make a system partition the primary one; the one that was becomes an ordinary system partition."""
    with _editing(path) as edit:
        return edit.set_primary(identifier, edit.clock(now))


def create_empty(path: Path, *, force: bool = False, now: int | None = None) -> Header:
    """A SIF file without objects."""
    created = _clock(now)
    with atomic_output(path, mode=FILE_MODE, force=force) as file:
        seed = os.urandom(16) if now is None else str(now).encode()
        return SifBuilder(file, architecture="unknown", created=created, launch=b"", seed=seed).finish()


def _clock(now: int | None) -> int:
    if now is not None:
        return now
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(epoch) if epoch.isdecimal() and len(epoch) < 12 else int(time.time())


@contextlib.contextmanager
def _editing(path: Path) -> Iterator[_Edit]:
    """An edit whose result replaces `path` when the block ends without an error; mode and owner stay."""
    with explained(path):
        target = path.resolve(strict=True)
        source = _open_held(target)
    with source:
        status = os.fstat(source.fileno())
        if not os.access(target, os.W_OK):  # the rename would succeed, but whoever made it read-only meant it
            raise FileProblem(f"{path} is read-only", hint=f"allow changes with 'chmod u+w {path}', or work on a copy")
        edit = _Edit(SifReader(source, str(path)))
        yield edit
        with atomic_output(target, mode=status.st_mode & 0o7777, force=True, exact=True) as file:
            edit.write(file)
            with contextlib.suppress(OSError):  # only root may keep another owner
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            if not os.path.samestat(status, target.stat()):
                raise FileProblem(f"{path} was changed by another process meanwhile", hint="try again")


def _open_held(target: Path) -> BinaryIO:
    """Open the file so that edits by several processes of one machine follow each other, where locks work."""
    while True:
        source = target.open("rb")
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(source.fileno(), fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(source.fileno()), target.stat()):
                return source
        except BaseException:
            source.close()
            raise
        source.close()  # while we waited, the one before us put a new file in its place


class _Edit:
    """The file as it will be: header, used descriptors by slot, and the new objects' bytes."""

    def __init__(self, reader: SifReader) -> None:
        self._reader = reader
        self._header = reader.header
        self._slots = {descriptor.slot: descriptor for descriptor in reader.descriptors}
        self._added: dict[int, DataObject] = {}

    def clock(self, now: int | None) -> int:
        """The time of the change; none in a file that was made without times and an ID, as Apptainer keeps it."""
        times, identity = {self._header.created, self._header.modified}, self._header.identity
        return NO_TIME if now is None and times == {NO_TIME} and not any(identity) else _clock(now)

    def append(self, item: DataObject, now: int) -> SifDescriptor:
        free = next((slot for slot in range(self._header.descriptors_total) if slot not in self._slots), None)
        if free is None:
            raise UsageError(
                f"all {self._header.descriptors_total} descriptors of {self._reader.where} are in use",
                hint="delete an object first with 'kedge sif del'",
            )
        descriptor = item.place(free, self._data_end(), item.size, now)
        if any(descriptor.id == known.id for known in self._slots.values()):
            descriptor = replace(descriptor, id=max(known.id for known in self._slots.values()) + 1)
        if descriptor.is_primary:
            self._claim_primary(descriptor)
        self._slots[free] = descriptor
        self._added[free] = item
        self._touch(now)
        return descriptor

    def _claim_primary(self, descriptor: SifDescriptor) -> None:
        taken = [known.id for known in self._slots.values() if known.is_primary]
        if taken:
            raise UsageError(
                f"{self._reader.where} has a primary partition already, object {taken[0]}",
                hint="add it as a system partition (--parttype 1), then 'kedge sif setprim'",
            )
        self._header = replace(self._header, architecture_code=ARCHITECTURE_CODES[descriptor.architecture])

    def delete(self, identifier: int, now: int) -> SifDescriptor:
        descriptor = self._reader.find(identifier)
        del self._slots[descriptor.slot]
        if descriptor.is_primary:
            self._header = replace(self._header, architecture_code=ARCHITECTURE_CODES["unknown"])
        self._touch(now)
        return descriptor

    def set_primary(self, identifier: int, now: int) -> SifDescriptor:
        descriptor = self._reader.find(identifier)
        if descriptor.data_type != DataType.PARTITION:
            raise UnsupportedFormat(f"object {identifier} of {self._reader.where} is not a partition")
        if descriptor.is_primary:
            return descriptor
        if descriptor.partition_type != PartitionType.SYSTEM:
            raise UnsupportedFormat(f"object {identifier} of {self._reader.where} is not a system partition")
        for slot, known in self._slots.items():
            if known.is_primary:
                self._slots[slot] = _with_partition_type(known, PartitionType.SYSTEM, now)
        chosen = _with_partition_type(descriptor, PartitionType.PRIMARY_SYSTEM, now)
        self._slots[descriptor.slot] = chosen
        self._header = replace(self._header, architecture_code=ARCHITECTURE_CODES[descriptor.architecture])
        self._touch(now)
        return chosen

    def _data_end(self) -> int:
        table_end = self._header.table_offset + self._header.descriptors_total * DESCRIPTOR.size
        first = max(self._header.data_offset, table_end)  # a damaged header may claim that data begins in the table
        return max([first, *(descriptor.end for descriptor in self._slots.values())])

    def _touch(self, now: int) -> None:
        self._header = replace(
            self._header,
            modified=now,
            descriptors_free=self._header.descriptors_total - len(self._slots),
            data_size=max(0, self._data_end() - self._header.data_offset),
        )

    def write(self, file: BinaryIO) -> None:
        """The whole new file: kept ranges copied, then new objects, then table and header."""
        kept = [(d.offset, d.size) for slot, d in self._slots.items() if slot not in self._added]
        _copy_ranges(self._reader.file, file, [(0, self._header.data_offset), *sorted(kept)])
        for slot, item in self._added.items():
            file.seek(self._slots[slot].offset)
            for chunk in item.chunks():
                file.write(chunk)
        for slot in range(self._header.descriptors_total):
            descriptor = self._slots.get(slot)
            file.seek(self._header.table_offset + slot * DESCRIPTOR.size)
            file.write(descriptor.pack() if descriptor else bytes(DESCRIPTOR.size))
        file.seek(0)
        file.write(self._header.pack())
        file.flush()
        os.ftruncate(file.fileno(), self._data_end())


def _with_partition_type(descriptor: SifDescriptor, kind: PartitionType, now: int) -> SifDescriptor:
    file_system, _, architecture = PARTITION_EXTRA.unpack_from(descriptor.extra)
    extra = PARTITION_EXTRA.pack(file_system, kind, architecture) + descriptor.extra[PARTITION_EXTRA.size :]
    return replace(descriptor, extra=extra, modified=now)


def _copy_ranges(source: BinaryIO, target: BinaryIO, ranges: Ranges) -> None:
    """Copy stretches to the same offsets; what lies between stays a hole."""
    for offset, size in ranges:
        target.seek(offset)
        copy_range(source, target, offset, size)
