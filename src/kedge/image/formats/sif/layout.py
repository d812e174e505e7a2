# SPDX-License-Identifier: BSD-3-Clause
"""The bytes of a SIF file: one header, one table of fixed-size descriptors, then the objects they point to.

    0        128            4096 (usually)                    32176 (usually)
    | header | ... zeros ... | total x 585-byte descriptors ... | objects; file systems begin at multiples of 4096

All integers are little-endian and packed. Reference implementation: https://github.com/apptainer/sif
"""

from __future__ import annotations

import struct
from enum import IntEnum

from kedge.base.frozen import frozen

HEADER = struct.Struct("<32s10s3s3s16s8q")  # launch, magic, version, architecture, uuid, then the eight numbers
DESCRIPTOR = struct.Struct("<i?III3q4q128s384s")
PARTITION_EXTRA = struct.Struct("<ii3s")  # file system, partition type, architecture
_SIGNATURE_EXTRA = struct.Struct("<i256s")  # hash, entity (a PGP fingerprint in its first 20 bytes, or zeros)
CRYPTO_EXTRA = struct.Struct("<ii")  # format, message type
SBOM_EXTRA = struct.Struct("<i")

VERSION = b"01\0"
LAUNCH_SCRIPT = b"#!/usr/bin/env run-singularity\n"  # Apptainer writes this name to this day
TABLE_OFFSET = 4096
TABLE_SLOTS = 48
DATA_OFFSET = TABLE_OFFSET + TABLE_SLOTS * DESCRIPTOR.size  # 32176
PARTITION_ALIGNMENT = 4096
NAME_LENGTH = 128
EXTRA_LENGTH = 384
FINGERPRINT_LENGTH = 20
GROUP_MASK = 0xF0000000  # set in every group number; alone it means "no group"
DEFAULT_GROUP = 1
FILE_MODE = 0o755  # the launch line makes the file a program
NO_TIME = -62135596800  # what deterministic writers in Go store: 1 January of the year 1


class DataType(IntEnum):
    """What an object is."""

    DEFFILE = 0x4001
    ENVIRONMENT = 0x4002
    LABELS = 0x4003
    PARTITION = 0x4004
    SIGNATURE = 0x4005
    GENERIC_JSON = 0x4006
    GENERIC = 0x4007
    CRYPTO_MESSAGE = 0x4008
    SBOM = 0x4009
    OCI_ROOT_INDEX = 0x400A
    OCI_BLOB = 0x400B


class FileSystem(IntEnum):
    """What a partition holds."""

    SQUASHFS = 1
    EXT3 = 2
    ARCHIVE = 3
    RAW = 4
    ENCRYPTED_SQUASHFS = 5  # LUKS
    GOCRYPTFS_SQUASHFS = 6  # Apptainer 1.3 and later


class PartitionType(IntEnum):
    """What a partition is for."""

    SYSTEM = 1
    PRIMARY_SYSTEM = 2
    DATA = 3
    OVERLAY = 4


class HashType(IntEnum):
    """The hash a signature is made over."""

    SHA256 = 1
    SHA384 = 2
    SHA512 = 3
    BLAKE2S_256 = 4
    BLAKE2B_256 = 5


DATA_TYPE_NAMES = {
    DataType.DEFFILE: "Def.FILE",
    DataType.ENVIRONMENT: "Env.Vars",
    DataType.LABELS: "JSON.Labels",
    DataType.PARTITION: "FS",
    DataType.SIGNATURE: "Signature",
    DataType.GENERIC_JSON: "JSON.Generic",
    DataType.GENERIC: "Generic/Raw",
    DataType.CRYPTO_MESSAGE: "Cryptographic Message",
    DataType.SBOM: "SBOM",
    DataType.OCI_ROOT_INDEX: "OCI.RootIndex",
    DataType.OCI_BLOB: "OCI.Blob",
}
FILE_SYSTEM_NAMES = {1: "Squashfs", 2: "Ext3", 3: "Archive", 4: "Raw", 5: "Encrypted squashfs", 6: "Gocryptfs squashfs"}
PARTITION_TYPE_NAMES = {1: "System", 2: "*System", 3: "Data", 4: "Overlay"}
HASH_NAMES = {1: "SHA-256", 2: "SHA-384", 3: "SHA-512", 4: "BLAKE2s-256", 5: "BLAKE2b-256"}
SBOM_NAMES = {
    1: "cyclonedx-json",
    2: "cyclonedx-xml",
    3: "github-json",
    4: "spdx-json",
    5: "spdx-rdf",
    6: "spdx-tag-value",
    7: "spdx-yaml",
    8: "syft-json",
}
CRYPTO_FORMAT_NAMES = {1: "OpenPGP", 2: "PEM"}
CRYPTO_MESSAGE_NAMES = {0x100: "Clear Signature", 0x200: "RSA-OAEP"}
ARCHITECTURES = {
    "00": "unknown",
    "01": "386",
    "02": "amd64",
    "03": "arm",
    "04": "arm64",
    "05": "ppc64",
    "06": "ppc64le",
    "07": "mips",
    "08": "mipsle",
    "09": "mips64",
    "10": "mips64le",
    "11": "s390x",
    "12": "riscv64",
    "13": "loong64",
}
ARCHITECTURE_CODES = {name: code.encode() + b"\0" for code, name in ARCHITECTURES.items()}


def encode_architecture(name: str) -> bytes:
    """The three bytes for an OCI architecture name; `00` for one that SIF has no code for."""
    return ARCHITECTURE_CODES.get(name, ARCHITECTURE_CODES["unknown"])


def _decode_architecture(code: bytes) -> str:
    """The OCI architecture name for the three bytes, or `unknown`."""
    return ARCHITECTURES.get(code.rstrip(b"\0").decode("latin-1"), "unknown")


def decode_text(field: bytes) -> str:
    """A NUL-padded text field fit for a terminal: what is not printable UTF-8 is shown as backslash escapes."""
    text = field.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@frozen
class Header:
    """The global header; byte fields are kept as they stand in the file, because signatures cover them."""

    launch: bytes
    magic: bytes
    version: bytes
    architecture_code: bytes
    identity: bytes
    created: int
    modified: int
    descriptors_free: int
    descriptors_total: int
    table_offset: int
    table_size: int
    data_offset: int
    data_size: int

    @classmethod
    def unpack(cls, raw: bytes) -> Header:
        """The header from its 128 bytes, unchecked."""
        return cls(*HEADER.unpack(raw))

    def pack(self) -> bytes:
        """The 128 bytes."""
        return HEADER.pack(
            self.launch,
            self.magic,
            self.version,
            self.architecture_code,
            self.identity,
            self.created,
            self.modified,
            self.descriptors_free,
            self.descriptors_total,
            self.table_offset,
            self.table_size,
            self.data_offset,
            self.data_size,
        )

    @property
    def architecture(self) -> str:
        """The primary partition's architecture under its OCI name, or `unknown`."""
        return _decode_architecture(self.architecture_code)


@frozen
class SifDescriptor:
    """One used entry of the table; `slot` is its place there, which its ID normally follows by one."""

    slot: int
    data_type: int
    id: int
    group_field: int
    link_field: int
    offset: int
    size: int
    padded_size: int
    created: int
    modified: int
    uid: int
    gid: int
    name_field: bytes
    extra: bytes

    @classmethod
    def unpack(cls, slot: int, raw: bytes) -> SifDescriptor | None:
        """The descriptor from its 585 bytes, unchecked, or None for a free slot."""
        data_type, used, *fields = DESCRIPTOR.unpack(raw)
        return cls(slot, data_type, *fields) if used else None

    def pack(self) -> bytes:
        """The 585 bytes."""
        return DESCRIPTOR.pack(
            self.data_type,
            True,
            self.id,
            self.group_field,
            self.link_field,
            self.offset,
            self.size,
            self.padded_size,
            self.created,
            self.modified,
            self.uid,
            self.gid,
            self.name_field,
            self.extra,
        )

    @property
    def end(self) -> int:
        """The offset just behind the object's bytes."""
        return self.offset + self.size

    @property
    def name(self) -> str:
        """The object's name, safe to print."""
        return decode_text(self.name_field)

    @property
    def group(self) -> int:
        """The group's number, 0 for none."""
        return self.group_field & ~GROUP_MASK

    @property
    def link(self) -> int:
        """The number of the object or group it belongs to, 0 for none."""
        return self.link_field & ~GROUP_MASK if self.links_group else self.link_field

    @property
    def links_group(self) -> bool:
        """Whether `link` is a group and not an object."""
        return self.link_field & GROUP_MASK == GROUP_MASK

    @property
    def file_system(self) -> int:
        """Return what a partition holds."""
        return int(PARTITION_EXTRA.unpack_from(self.extra)[0])

    @property
    def partition_type(self) -> int:
        """Return what a partition is for."""
        return int(PARTITION_EXTRA.unpack_from(self.extra)[1])

    @property
    def architecture(self) -> str:
        """Return the architecture that a partition's programs are for."""
        return _decode_architecture(PARTITION_EXTRA.unpack_from(self.extra)[2])

    @property
    def is_primary(self) -> bool:
        """Whether this is the partition a container starts from."""
        return self.data_type == DataType.PARTITION and self.partition_type == PartitionType.PRIMARY_SYSTEM

    @property
    def is_data(self) -> bool:
        """Whether the partition is a file system with data, which no container starts from."""
        return self.data_type == DataType.PARTITION and self.partition_type == PartitionType.DATA

    @property
    def hash_type(self) -> int:
        """Return the hash that a signature is made over."""
        return int(_SIGNATURE_EXTRA.unpack_from(self.extra)[0])

    @property
    def entity(self) -> bytes:
        """Return the fingerprint of a signature's key, 20 bytes, all zero where the kind of key has none."""
        return bytes(_SIGNATURE_EXTRA.unpack_from(self.extra)[1][:FINGERPRINT_LENGTH])


def pack_partition_extra(file_system: int, partition_type: int, architecture: str) -> bytes:
    """The type-dependent field of a partition."""
    return PARTITION_EXTRA.pack(file_system, partition_type, encode_architecture(architecture))


def pack_signature_extra(hash_type: int, entity: bytes = b"") -> bytes:
    """The type-dependent field of a signature."""
    return _SIGNATURE_EXTRA.pack(hash_type, entity)
