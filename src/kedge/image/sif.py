# SPDX-License-Identifier: BSD-3-Clause
"""The operations of `kedge sif`: read SIF files and change their objects, with the numbers of `apptainer sif add`."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.base.frozen import JsonValue
from kedge.errors import CorruptImage, HostileImage, UsageError
from kedge.image.formats.check_file import check_file
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import (
    ARCHITECTURES,
    CRYPTO_EXTRA,
    FILE_SYSTEM_NAMES,
    FINGERPRINT_LENGTH,
    HASH_NAMES,
    PARTITION_TYPE_NAMES,
    SBOM_EXTRA,
    SBOM_NAMES,
    DataType,
    SifDescriptor,
    pack_partition_extra,
    pack_signature_extra,
)
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.check_image import CheckOptions
from kedge.system.files import explained

_TYPE_BASE = 0x4000  # `--datatype 4` is type 0x4004


@dataclass(frozen=True, slots=True)
class AddOptions:
    """The flags of `sif add`; None where one was not given."""

    data_type: int
    partition_type: int | None = None
    file_system: int | None = None
    architecture: int | None = None
    hash_type: int | None = None
    entity: str | None = None
    sbom_format: str | None = None
    group: int = 0
    link: int = 0
    alignment: int | None = None
    name: str | None = None


@contextlib.contextmanager
def open_sif(path: Path) -> Iterator[SifReader]:
    """The file, opened and checked."""
    with explained(path), path.open("rb") as file:
        yield SifReader(file, str(path))


@dataclass(frozen=True, slots=True)
class VerifiedImage(JsonValue):
    """What was found in an image: `state` is ok, broken, or unchecked where kedge cannot read its root."""

    path: Path
    state: str
    files: int | None = None
    problem: str | None = None


def verify_image(path: Path, threads: int = 1, *, is_quick: bool = False) -> VerifiedImage:
    """Look at all of an image: its tables, and unless `is_quick` its contents."""
    with explained(path), path.open("rb") as file:
        try:
            found = check_file(file, str(path), CheckOptions(with_contents=not is_quick, threads=threads))
        except (CorruptImage, HostileImage) as problem:
            return VerifiedImage(path, "broken", problem=problem.message.removeprefix(f"{path} is "))
    return VerifiedImage(path, "unchecked") if found is None else VerifiedImage(path, "ok", found.files)


def dump_object(path: Path, identifier: int) -> Iterator[bytes]:
    """The bytes of one object."""
    with open_sif(path) as reader:
        yield from reader.chunks(reader.find(identifier))


def add_object(path: Path, source: Path, options: AddOptions) -> SifDescriptor:
    """Add the content of a file as an object."""
    with explained(source):
        if source.exists() and not source.is_file():
            raise UsageError(f"{source} is not a regular file", hint="name the file to add")
        file = source.open("rb")
    with file:
        item = DataObject(
            data_type=_TYPE_BASE + options.data_type,
            data=file,
            name=source.name if options.name is None else options.name,
            group=options.group,
            link=options.link,
            extra=_make_extra(options, source),
            alignment=options.alignment,
        )
        return append_object(path, item)


def _make_extra(options: AddOptions, source: Path) -> bytes:
    """The type-dependent field, from the flags that the type needs."""
    kind = _TYPE_BASE + options.data_type
    if kind not in set(DataType):
        raise UsageError(
            f"--datatype {options.data_type} is unknown", hint="use 1 to 11: kedge sif add --help lists them"
        )
    if kind == DataType.PARTITION:
        return _partition_extra(options)
    if kind == DataType.SIGNATURE:
        return _signature_extra(options)
    if kind == DataType.CRYPTO_MESSAGE:
        return CRYPTO_EXTRA.pack(0, 0)
    if kind == DataType.SBOM:
        codes = {name: code for code, name in SBOM_NAMES.items()}
        if options.sbom_format not in codes:
            raise UsageError(f"--datatype 9 requires --sbomformat: {', '.join(codes)}")
        return SBOM_EXTRA.pack(codes[options.sbom_format])
    if kind in (DataType.OCI_ROOT_INDEX, DataType.OCI_BLOB):
        return f"sha256:{_hash_file(source)}".encode()
    return b""


def _partition_extra(options: AddOptions) -> bytes:
    partition = _choice("--parttype", options.partition_type, set(PARTITION_TYPE_NAMES))
    file_system = _choice("--partfs", options.file_system, set(FILE_SYSTEM_NAMES))
    codes = {int(code): name for code, name in ARCHITECTURES.items() if name != "unknown"}
    return pack_partition_extra(file_system, partition, codes[_choice("--partarch", options.architecture, set(codes))])


def _signature_extra(options: AddOptions) -> bytes:
    hash_type = _choice("--signhash", options.hash_type, set(HASH_NAMES))
    try:
        entity = bytes.fromhex(options.entity or "")
    except ValueError:
        entity = b""
    if len(entity) != FINGERPRINT_LENGTH:
        raise UsageError(f"--signentity must be a fingerprint of {2 * FINGERPRINT_LENGTH} hexadecimal digits")
    return pack_signature_extra(hash_type, entity)


def _choice(flag: str, value: int | None, known: set[int]) -> int:
    if value is None:
        raise UsageError(f"this --datatype requires {flag}", hint="kedge sif add --help lists the values")
    if value not in known:
        raise UsageError(f"{flag} {value} is unknown: use {', '.join(map(str, sorted(known)))}")
    return value


def _hash_file(path: Path) -> str:
    with explained(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
