# SPDX-License-Identifier: BSD-3-Clause
"""Writes a SIF file in one pass: small objects, then a file system that is produced in its final place.

Nothing is copied twice: `begin_partition` leaves the file where the SquashFS writer starts, `end_partition` says how
long it became, `finish` goes back and fills header and table. The same calls give the same bytes.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import BinaryIO

from kedge.base.frozen import replace
from kedge.errors import CorruptImage, FaultyImage, UnsupportedFormat, UsageError
from kedge.image.formats.identify import SIF_MAGIC
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.layout import (
    DATA_OFFSET,
    DESCRIPTOR,
    LAUNCH_SCRIPT,
    TABLE_OFFSET,
    TABLE_SLOTS,
    VERSION,
    DataType,
    FileSystem,
    Header,
    PartitionType,
    SifDescriptor,
    encode_architecture,
    pack_partition_extra,
)
from kedge.image.formats.sif.reader import SifReader

_NAMESPACE = uuid.UUID("6b656467-6500-5000-8000-736966206964")


class SifBuilder:
    """A SIF file being written into `file`, which must be empty, seekable and readable.

    `seed` is what the UUID is derived from (the source's digest and the options that change the result); without one
    it is derived from the objects and their sizes. `created` is the time every descriptor carries.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        architecture: str,
        created: int,
        launch: bytes = LAUNCH_SCRIPT,
        seed: bytes = b"",
    ) -> None:
        if len(launch) > 31:
            raise UsageError(f"a launch script has at most 31 bytes, this one has {len(launch)}")
        self._file = file
        self._architecture = architecture
        self._created = created
        self._launch = launch
        self._seed = seed
        self._content = hashlib.sha256()
        self._descriptors: list[SifDescriptor] = []
        self._end = DATA_OFFSET
        self._open: SifDescriptor | None = None

    def add_object(self, data_type: int, data: bytes, name: str = "", extra: bytes = b"") -> SifDescriptor:
        """Store a small object behind what is there already."""
        return self.add(DataObject(data_type, data, name, extra=extra))

    def add(self, item: DataObject) -> SifDescriptor:
        """Store an object with all its properties."""
        descriptor = self._place(item, item.size)
        self._file.seek(descriptor.offset)
        for chunk in item.chunks():
            self._file.write(chunk)
            self._content.update(chunk)
        self._keep(descriptor)
        return descriptor

    def replace_object(self, known: SifDescriptor, data: bytes) -> None:
        """Store other bytes for an object, behind what is there already: what stands before a partition cannot grow."""
        item = DataObject(known.data_type, data, known.name, group=known.group, extra=known.extra)
        descriptor = item.place(known.id - 1, self._end, len(data), self._created)
        self._file.seek(descriptor.offset)
        self._file.write(data)
        self._content.update(data)
        self._descriptors[known.id - 1] = descriptor
        self._end = descriptor.end

    def begin_partition(
        self,
        name: str = "",
        *,
        file_system: int = FileSystem.SQUASHFS,
        partition_type: int = PartitionType.PRIMARY_SYSTEM,
    ) -> int:
        """Position the file where the file system goes, a multiple of 4096, and return that offset."""
        extra = pack_partition_extra(file_system, partition_type, self._architecture)
        self._open = self._place(DataObject(DataType.PARTITION, b"", name, extra=extra), 0)
        self._file.seek(self._open.offset)
        return self._open.offset

    def end_partition(self, size: int) -> SifDescriptor:
        """The file system that was begun has `size` bytes."""
        if self._open is None:
            raise UsageError("no partition was begun")
        padding = self._open.padded_size
        descriptor = replace(self._open, size=size, padded_size=size + padding)
        self._open = None
        self._keep(descriptor)
        return descriptor

    def finish(self) -> Header:
        """Write header and table, and read them back; the file then ends where the last object ends."""
        if self._open is not None:
            raise UsageError("the partition that was begun was not ended")
        header = self._make_header()
        table = b"".join(descriptor.pack() for descriptor in self._descriptors)
        self._file.seek(0)
        self._file.write(header.pack().ljust(TABLE_OFFSET, b"\0"))
        self._file.write(table.ljust(DATA_OFFSET - TABLE_OFFSET, b"\0"))
        self._file.truncate(self._end)
        check_written(self._file)
        return header

    def _place(self, item: DataObject, size: int) -> SifDescriptor:
        if self._open is not None:
            raise UsageError("a partition is being written; end it first")
        if len(self._descriptors) == TABLE_SLOTS:
            raise UsageError(f"a SIF file holds {TABLE_SLOTS} objects")
        return item.place(len(self._descriptors), self._end, size, self._created)

    def _keep(self, descriptor: SifDescriptor) -> None:
        if descriptor.is_primary and any(known.is_primary for known in self._descriptors):
            raise UsageError("a SIF file has one primary partition")
        self._descriptors.append(descriptor)
        self._content.update(descriptor.pack())
        self._end = descriptor.end

    def _make_header(self) -> Header:
        primary = any(descriptor.is_primary for descriptor in self._descriptors)
        return Header(
            launch=self._launch,
            magic=SIF_MAGIC,
            version=VERSION,
            architecture_code=encode_architecture(self._architecture if primary else "unknown"),
            identity=_derive_identity(self._seed or self._content.digest()),
            created=self._created,
            modified=self._created,
            descriptors_free=TABLE_SLOTS - len(self._descriptors),
            descriptors_total=TABLE_SLOTS,
            table_offset=TABLE_OFFSET,
            table_size=TABLE_SLOTS * DESCRIPTOR.size,
            data_offset=DATA_OFFSET,
            data_size=self._end - DATA_OFFSET,
        )


def _derive_identity(seed: bytes) -> bytes:
    """The 16 bytes of a name-based UUID (version 5) for `seed`."""
    return uuid.uuid5(_NAMESPACE, hashlib.sha256(seed).hexdigest()).bytes


# Reads a SIF back that kedge wrote: header, descriptors, and where they say that objects are.

_PAGE = 4096  # file systems begin at a multiple of it, or no kernel mounts them


def check_written(file: BinaryIO) -> None:
    """Raise `FaultyImage` where the file is not what a writer of SIF files makes."""
    file.flush()
    try:
        _check_places(SifReader(file, "the new SIF"))
    except (CorruptImage, UnsupportedFormat) as problem:
        raise FaultyImage.of(problem) from problem


def _check_places(reader: SifReader) -> None:
    header, objects = reader.header, reader.descriptors
    if header.descriptors_free != header.descriptors_total - len(objects):
        raise _damaged("descriptors_free", f"is {header.descriptors_free}, with {len(objects)} objects")
    if header.data_offset + header.data_size != reader.size:
        raise _damaged("data_size", f"is {header.data_size}, and the file has {reader.size} bytes")
    for entry in objects:
        if entry.offset < header.data_offset:
            raise _damaged("offset", f"of object {entry.id} is {entry.offset}, before the data")
        if entry.data_type == DataType.PARTITION and entry.offset % _PAGE:
            raise _damaged("offset", f"of partition {entry.id} is {entry.offset}, no multiple of {_PAGE}")
        if entry.is_primary and entry.architecture != header.architecture:
            raise _damaged("architecture", f"is {header.architecture}, and that of the root is {entry.architecture}")


def _damaged(field: str, problem: str) -> CorruptImage:
    return CorruptImage(f"SIF header or descriptors: {field} {problem}", context={"field": field})
