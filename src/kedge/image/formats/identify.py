# SPDX-License-Identifier: BSD-3-Clause
"""Identify an image file by its first bytes.

A download that went wrong is a web page, a layer or half a file under a .sif name; the errors here say so.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import BinaryIO

from kedge.errors import CorruptImage, KedgeError, UnsupportedFormat
from kedge.system.spawn import ELFMAG

PROBE = 2048  # Apptainer looks at as much
_EXT_MAGIC_OFFSET = 1080
SIF_MAGIC = b"SIF_MAGIC\0"
SIF_MAGIC_OFFSET = 32
SQUASHFS_MAGIC = b"hsqs"


class FileKind(StrEnum):
    """Kinds of files that turn up where an image is expected."""

    SIF = "a SIF image"
    SQUASHFS = "a bare SquashFS image"
    EXT = "a bare ext2/ext3/ext4 image"
    GZIP = "gzip-compressed data"
    ZSTD = "zstd-compressed data"
    XZ = "xz-compressed data"
    BZIP2 = "bzip2-compressed data"
    ZIP = "a zip archive"
    TAR = "a tar archive"
    HTML = "a web page (HTML)"
    JSON = "a JSON document"
    XML = "an XML document"
    ELF = "an ELF program"
    SCRIPT = "a script"
    LUKS = "a LUKS-encrypted volume"
    LFS_POINTER = "a Git LFS pointer, not the file itself"
    TEXT = "a text file"
    EMPTY = "an empty file"
    UNKNOWN = "a file of unknown kind"


# what an OCI or docker-save archive can be
ARCHIVES = frozenset({FileKind.TAR, FileKind.GZIP, FileKind.ZSTD, FileKind.XZ, FileKind.BZIP2})
_PREFIXES = (
    (b"\x1f\x8b", FileKind.GZIP),
    (b"\x28\xb5\x2f\xfd", FileKind.ZSTD),
    (b"\xfd7zXZ\0", FileKind.XZ),
    (b"BZh", FileKind.BZIP2),
    (b"PK\x03\x04", FileKind.ZIP),
    (ELFMAG, FileKind.ELF),
    (b"LUKS\xba\xbe", FileKind.LUKS),
    (b"version https://git-lfs", FileKind.LFS_POINTER),
)
_HINTS = {
    FileKind.SQUASHFS: "make a SIF of it with 'kedge convert', or use it as it is",
    FileKind.GZIP: "decompress it with 'gunzip' if it is a compressed image, or give it as oci-archive:FILE or "
    "docker-archive:FILE if it is an archive",
    FileKind.TAR: "give it as oci-archive:FILE or docker-archive:FILE",
    FileKind.HTML: "the download answered with a web page, often a login or error page: fetch the file again",
    FileKind.JSON: "the download answered with a message, not the image: read it with 'cat', then fetch the file again",
    FileKind.XML: "the download answered with a message, not the image: read it with 'cat', then fetch the file again",
    FileKind.LFS_POINTER: "fetch the real file with 'git lfs pull'",
    FileKind.EMPTY: "the download or copy that made it failed: fetch the file again",
    FileKind.LUKS: "an encrypted volume can only be opened by the program that made it",
}


def identify_file(file: BinaryIO) -> FileKind:
    """The kind of the file, from its first 2048 bytes; moves the file's position."""
    file.seek(0)
    return identify_bytes(file.read(PROBE))


def identify_bytes(start: bytes) -> FileKind:
    """The kind of a file that begins with `start`."""
    if not start:
        return FileKind.EMPTY
    if start[SIF_MAGIC_OFFSET : SIF_MAGIC_OFFSET + len(SIF_MAGIC)] == SIF_MAGIC:
        return FileKind.SIF
    if start[find_payload(start) :].startswith(SQUASHFS_MAGIC):
        return FileKind.SQUASHFS
    for prefix, kind in _PREFIXES:
        if start.startswith(prefix):
            return kind
    if start[257:262] == b"ustar":
        return FileKind.TAR
    if start[_EXT_MAGIC_OFFSET : _EXT_MAGIC_OFFSET + 2] == b"\x53\xef":
        return FileKind.EXT
    return _identify_text(start)


def find_payload(start: bytes) -> int:
    """Where a bare file system begins: 0, or behind the `#!` line Singularity 2 put before it."""
    if not start.startswith(b"#!"):
        return 0
    newline = start.find(b"\n", 0, 1024)
    return newline + 1 if newline >= 0 else 0


def _identify_text(start: bytes) -> FileKind:
    head = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html", b"<head", b"<body")) or b"<html" in head[:1024]:
        return FileKind.HTML
    if head.startswith(b"<?xml"):
        return FileKind.XML
    if head.startswith((b'{"', b"{\n", b"{ ", b"{}", b'[{"')):
        return FileKind.JSON
    if start.startswith(b"#!"):
        return FileKind.SCRIPT
    if b"\0" not in start and all(byte >= 32 or byte in b"\t\r\n\f" for byte in start[:512]):
        return FileKind.TEXT
    return FileKind.UNKNOWN


def refuse_as_sif(start: bytes, where: str) -> KedgeError:
    """The error for a file that is not a SIF: what it is, and what helps."""
    kind = identify_bytes(start)
    context = {"file": where, "field": "magic", "offset": str(SIF_MAGIC_OFFSET), "first bytes": start[:16].hex(" ")}
    alike = sum(a == b for a, b in zip(start[SIF_MAGIC_OFFSET:], SIF_MAGIC, strict=False))
    if alike >= len(SIF_MAGIC) - 3 and kind in (FileKind.UNKNOWN, FileKind.SCRIPT):
        return CorruptImage(f"{where} has a damaged SIF header", context=context, hint="fetch the file again")
    if kind is FileKind.SIF:
        message = f"{where} ends after {len(start)} bytes: the header of a SIF image alone has 128"
        return CorruptImage(message, context=context, hint="its download or copy was interrupted: fetch it again")
    message = f"{where} is not a SIF image: it is {kind.value}"
    if len(start) < 128 and kind in (FileKind.UNKNOWN, FileKind.TEXT):
        message += f" of {len(start)} bytes; a SIF header alone has 128"
    return UnsupportedFormat(message, context=context, hint=_HINTS.get(kind))


def file_size(file: BinaryIO) -> int:
    """The size of an open, seekable file."""
    return file.seek(0, os.SEEK_END)
