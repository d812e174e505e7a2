# SPDX-License-Identifier: BSD-3-Clause
"""Reads untrusted SIF files of any writer: header, descriptors and objects.

Every count, offset and size is compared with the file's size before it is used, so a damaged or hostile file costs
a few reads and gives an error that names the field and where it stands.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.image.formats.identify import PROBE, SIF_MAGIC, file_size, refuse_as_sif
from kedge.image.formats.sif.layout import (
    DATA_TYPE_NAMES,
    DESCRIPTOR,
    FILE_SYSTEM_NAMES,
    HEADER,
    VERSION,
    DataType,
    FileSystem,
    Header,
    SifDescriptor,
    decode_text,
)

_MAXIMUM_DESCRIPTORS = 16384  # writers make 48; the bound keeps a false count from costing memory
_MAXIMUM_OBJECT = 64 << 20  # bytes that are read into memory at once: definition files, JSON, signatures
_CHUNK = 1 << 20

# offsets of the header's number fields, for messages
_HEADER_FIELDS = {
    "descriptors_free": 80,
    "descriptors_total": 88,
    "table_offset": 96,
    "table_size": 104,
    "data_offset": 112,
    "data_size": 120,
}
_DESCRIPTOR_FIELDS = {"id": 5, "offset": 17, "size": 25, "padded_size": 33}


class SifReader:
    """A SIF file, checked when opened; `where` is what errors call it."""

    def __init__(self, file: BinaryIO, where: str = "") -> None:
        self.file = file
        self.where = where or str(getattr(file, "name", "the file"))
        self.size = file_size(file)
        self.header = self._read_header()
        self.descriptors = self._read_table()
        self._check_overlaps()

    # ---- finding objects

    def find(self, identifier: int) -> SifDescriptor:
        """The object with this ID."""
        for descriptor in self.descriptors:
            if descriptor.id == identifier:
                return descriptor
        known = ", ".join(str(descriptor.id) for descriptor in self.descriptors) or "none"
        raise UnsupportedFormat(
            f"{self.where} has no object {identifier}",
            context={"objects": known},
            hint="'kedge sif list' shows its objects",
        )

    def find_named(self, data_type: int, name: str) -> SifDescriptor | None:
        """The first object of this type and name that belongs to the root file system."""
        return next((d for d in self._list_documents() if d.data_type == data_type and d.name == name), None)

    def find_type(self, data_type: int) -> SifDescriptor | None:
        """The first object of this type that belongs to the root file system."""
        return next((d for d in self._list_documents() if d.data_type == data_type), None)

    def _list_documents(self) -> list[SifDescriptor]:
        """The objects that speak for the image: those of its root's group, which one signature covers.

        Whatever stands in another group, or in none, anybody may have added to a signed image. A file without a root
        runs nothing, so all of its objects are shown.
        """
        groups = {descriptor.group for descriptor in self.descriptors if descriptor.is_primary}
        return [descriptor for descriptor in self.descriptors if not groups or descriptor.group in groups]

    @property
    def is_oci_sif(self) -> bool:
        """Whether this is Singularity-CE's container of OCI blobs."""
        kinds = {descriptor.data_type for descriptor in self.descriptors}
        return DataType.OCI_ROOT_INDEX in kinds or DataType.OCI_BLOB in kinds

    def primary_partition(self) -> SifDescriptor:
        """The partition a container starts from; an error says why there is none."""
        primary = [descriptor for descriptor in self.descriptors if descriptor.is_primary]
        if len(primary) > 1:
            numbers = ", ".join(str(descriptor.id) for descriptor in primary)
            raise CorruptImage(
                f"{self.where} has {len(primary)} primary partitions (objects {numbers}); one is allowed",
                context={"field": "partition type", "objects": numbers},
            )
        if primary:
            return primary[0]
        if self.is_oci_sif:
            raise UnsupportedFormat(
                f"{self.where} is an OCI-SIF, the container of OCI layers that Singularity-CE 4 makes with --oci; "
                "it has no root file system of its own, and Apptainer cannot run it either",
                hint="pull the image again from its registry with 'kedge pull', or get the layers out with "
                "'singularity push FILE.oci.sif docker://...' and pull that",
            )
        raise UnsupportedFormat(
            f"{self.where} has no primary system partition, so it cannot be run",
            context={"objects": str(len(self.descriptors))},
            hint="choose one of its partitions with 'kedge sif setprim ID FILE'"
            if any(
                descriptor.data_type == DataType.PARTITION and not descriptor.is_data for descriptor in self.descriptors
            )
            else "it contains no file system: pull or build the image again",
        )

    def root_partition(self) -> SifDescriptor:
        """The primary partition, if it is a plain SquashFS that can be read here."""
        partition = self.primary_partition()
        kind = partition.file_system
        if kind == FileSystem.SQUASHFS:
            return partition
        name = FILE_SYSTEM_NAMES.get(kind, f"file system type {kind}")
        if kind in (FileSystem.ENCRYPTED_SQUASHFS, FileSystem.GOCRYPTFS_SQUASHFS):
            how = "LUKS" if kind == FileSystem.ENCRYPTED_SQUASHFS else "gocryptfs"
            raise UnsupportedFormat(
                f"{self.where} is encrypted ({how}): kedge cannot read its files without the key",
                context={"object": str(partition.id), "file system": name},
                hint="run it with 'kedge exec --pem-path KEY' or '--passphrase', or ask for a plain copy"
                if how == "gocryptfs"
                else "run it where a setuid Apptainer is installed: 'apptainer exec --pem-path KEY'",
            )
        raise UnsupportedFormat(
            f"{self.where} holds an {name} root file system; kedge reads only SquashFS",
            context={"object": str(partition.id), "file system": name},
            hint="convert it where Apptainer is installed: apptainer build NEW.sif OLD.sif",
        )

    # ---- reading objects

    def read_object(self, descriptor: SifDescriptor, limit: int = _MAXIMUM_OBJECT) -> bytes:
        """The whole object; one larger than `limit` is refused."""
        if descriptor.size > limit:
            raise UnsupportedFormat(
                f"object {descriptor.id} of {self.where} has {descriptor.size} bytes, too many for "
                f"{describe_type(descriptor.data_type)} (at most {limit})"
            )
        return b"".join(self.chunks(descriptor))

    def chunks(self, descriptor: SifDescriptor) -> Iterator[bytes]:
        """The object's bytes in pieces of at most 1 MiB."""
        position = descriptor.offset
        while position < descriptor.end:
            self.file.seek(position)
            chunk = self.file.read(min(_CHUNK, descriptor.end - position))
            if not chunk:
                raise CorruptImage(
                    f"{self.where} ends inside object {descriptor.id}",
                    context={"offset": str(position), "missing": f"{descriptor.end - position} bytes"},
                )
            position += len(chunk)
            yield chunk

    def open_object(self, descriptor: SifDescriptor) -> io.BufferedReader:
        """The object as a seekable file of its own; it shares this file's position, so use one at a time."""
        return io.BufferedReader(_Window(self.file, descriptor.offset, descriptor.size), _CHUNK >> 3)

    # ---- checks

    def _read_header(self) -> Header:
        self.file.seek(0)
        start = self.file.read(PROBE)
        if len(start) < HEADER.size or start[32:42] != SIF_MAGIC:
            raise refuse_as_sif(start, self.where)
        header = Header.unpack(start[: HEADER.size])
        if header.version != VERSION:
            raise UnsupportedFormat(
                f"{self.where} has SIF version '{decode_text(header.version)}'; only version 01 exists",
                context={"field": "version", "offset": "42"},
            )
        self._check_header(header)
        return header

    def _check_header(self, header: Header) -> None:
        for field, offset in _HEADER_FIELDS.items():
            if getattr(header, field) < 0:
                raise self._damaged(field, offset, f"is {getattr(header, field)}, a negative number")
        total = header.descriptors_total
        if header.descriptors_free > total:
            raise self._damaged("descriptors_free", 80, f"is {header.descriptors_free}, more than all {total}")
        if total > _MAXIMUM_DESCRIPTORS:
            raise self._damaged("descriptors_total", 88, f"is {total}; no file has more than {_MAXIMUM_DESCRIPTORS}")
        if header.table_size < total * DESCRIPTOR.size:
            need = total * DESCRIPTOR.size
            raise self._damaged("table_size", 104, f"is {header.table_size}, but {total} descriptors need {need}")
        if total and header.table_offset < HEADER.size:
            raise self._damaged("table_offset", 96, f"is {header.table_offset}, inside the header")
        if header.table_offset + total * DESCRIPTOR.size > self.size:
            end = header.table_offset + total * DESCRIPTOR.size
            raise self._damaged("table_offset", 96, f"puts the descriptor table's end at {end}, behind the file's end")
        if header.data_offset + header.data_size > self.size:
            end = header.data_offset + header.data_size
            raise self._damaged("data_size", 120, f"puts the end of the data at {end}, behind the file's end")

    def _damaged(self, field: str, offset: int, problem: str) -> CorruptImage:
        return CorruptImage(
            f"{self.where} is truncated or damaged: {field} {problem}",
            context={"field": field, "offset": str(offset), "file size": str(self.size)},
            hint="fetch the file again, and compare its size and checksum with the original",
        )

    def _read_table(self) -> tuple[SifDescriptor, ...]:
        self.file.seek(self.header.table_offset)
        wanted = self.header.descriptors_total * DESCRIPTOR.size
        table = self.file.read(wanted)
        if len(table) < wanted:
            raise self._damaged("table_offset", 96, f"leaves {len(table)} of the table's {wanted} bytes")
        descriptors: list[SifDescriptor] = []
        seen: set[int] = set()
        for slot in range(self.header.descriptors_total):
            descriptor = SifDescriptor.unpack(slot, table[slot * DESCRIPTOR.size : (slot + 1) * DESCRIPTOR.size])
            if descriptor is None:
                continue
            self._check_descriptor(descriptor, seen)
            seen.add(descriptor.id)
            descriptors.append(descriptor)
        return tuple(descriptors)

    def _check_descriptor(self, descriptor: SifDescriptor, seen: set[int]) -> None:
        if descriptor.id == 0 or descriptor.id in seen:
            raise self._bad_descriptor(descriptor, "id", f"is {descriptor.id}, which is zero or taken")
        for field in ("offset", "size", "padded_size"):
            if getattr(descriptor, field) < 0:
                raise self._bad_descriptor(descriptor, field, f"is {getattr(descriptor, field)}, a negative number")
        if descriptor.end > self.size:
            problem = f"is {descriptor.size}: the object ends at {descriptor.end}, behind the file's end"
            raise self._bad_descriptor(descriptor, "size", problem)
        table_end = self.header.table_offset + self.header.descriptors_total * DESCRIPTOR.size
        in_table = descriptor.offset < table_end and descriptor.end > self.header.table_offset
        if descriptor.size and (descriptor.offset < HEADER.size or in_table):
            raise self._bad_descriptor(descriptor, "offset", f"is {descriptor.offset}, inside the header or the table")

    def _bad_descriptor(self, descriptor: SifDescriptor, field: str, problem: str) -> CorruptImage:
        place = self.header.table_offset + descriptor.slot * DESCRIPTOR.size + _DESCRIPTOR_FIELDS[field]
        error = self._damaged(f"descriptor {descriptor.slot + 1} {field}", place, problem)
        error.context["type"] = describe_type(descriptor.data_type)
        return error

    def _check_overlaps(self) -> None:
        end, previous = 0, 0
        for descriptor in sorted((d for d in self.descriptors if d.size), key=lambda d: d.offset):
            if descriptor.offset < end:
                raise self._bad_descriptor(
                    descriptor, "offset", f"is {descriptor.offset}, inside object {previous}, which ends at {end}"
                )
            end, previous = descriptor.end, descriptor.id


def describe_type(data_type: int) -> str:
    """The type as listings show it; the number for one nobody here knows."""
    try:
        return DATA_TYPE_NAMES[DataType(data_type)]
    except ValueError:
        return f"Unknown ({data_type:#x})"


class SeekableBytes(io.RawIOBase):
    """Bytes of a known number that are elsewhere; seeking costs nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Whether the file can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether positions in the file can be chosen: always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """The new position; the end does not bound it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position


class _Window(SeekableBytes):
    """A stretch of another file, as a file."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__(size)
        self._file = file
        self._offset = offset

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = max(0, min(len(buffer), self._size - self._position))
        self._file.seek(self._offset + self._position)
        data = self._file.read(wanted)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
