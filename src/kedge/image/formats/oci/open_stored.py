# SPDX-License-Identifier: BSD-3-Clause
"""Open whatever holds images on disk, by what it is and not by what it is called.

`docker save` since version 25 writes files that are both kinds at once, and people mix up `oci-archive:` and
`docker-archive:`; the wanted kind is taken where it is there, else the other.
"""

from __future__ import annotations

import os
import posixpath
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.errors import CorruptImage, FileProblem, HostileImage, UnsupportedFormat
from kedge.image.formats.compression.streams import inflate
from kedge.image.formats.oci.docker_archive import DockerArchive
from kedge.image.formats.oci.layout import OciLayout, is_layout
from kedge.image.formats.oci.stored_image import PIECE, BlobDirectory, StoredImages
from kedge.system.files import explained
from kedge.system.views import follow_links


def open_images(path: Path, *, prefer_docker: bool = False, temporary: Path | None = None) -> StoredImages:
    """Open an OCI layout directory, an OCI archive or a docker-save archive, compressed or not; the caller closes it.

    A compressed archive is inflated into an unnamed file in `temporary`, by default in TMPDIR.
    """
    if not path.exists():
        raise FileProblem(f"{path}: no such file or directory", hint="check the spelling of the path")
    if path.is_dir():
        folder = BlobDirectory(path)
        return DockerArchive(folder) if folder.has("manifest.json") and not is_layout(folder) else OciLayout.open(path)
    archive = TarArchive.open(path, temporary)
    try:
        if is_layout(archive) and not (prefer_docker and archive.has("manifest.json")):
            return OciLayout(archive)
        return DockerArchive(archive)
    except BaseException:
        archive.close()
        raise


# The outer tar of OCI and docker-save archives: one scan for offsets, then random access, nothing unpacked.
#
# Member names are only keys here; no path from an archive ever reaches the file system. A compressed archive is
# inflated once into an unnamed temporary file. Format: POSIX.1-1988 ustar, pax `path`/`linkpath`/`size`, GNU long
# names.

_BLOCK = 512
_MAXIMUM_MEMBERS = 200_000  # an archive has a few members per layer and image
_MAXIMUM_EXTENSION = 1 << 20  # bytes of one pax header or GNU long name
_REGULAR, _HARD_LINK, _SYMLINK = b"0\0007", b"1", b"2"
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK, _SPARSE = b"x", b"g", b"L", b"K", b"S"
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh")  # gzip, zstd, xz, bzip2
_RATIO_LIMIT = 300  # archives of layers never compress better; gzip's own limit is 1032
_ALWAYS_ALLOWED = 1 << 30


@dataclass(frozen=True, slots=True)
class _Member:
    kind: bytes
    offset: int
    size: int
    target: str


class TarArchive:
    """The members of a tar file by name; a `BlobFiles`. Reads by position, so threads may share it."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.where = where
        self._file = file
        self._members = dict(_scan(file, where))

    @classmethod
    def open(cls, path: Path, temporary: Path | None = None) -> TarArchive:
        """Open a tar file, plain or compressed; `temporary` is the directory to inflate a compressed one in."""
        with explained(path):
            # O_NONBLOCK: a FIFO in place of the archive must not be waited for.
            file: BinaryIO = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileProblem(f"{path} is not a regular file")
            if os.pread(file.fileno(), 8, 0).startswith(_COMPRESSED):
                plain = _inflate_file(file, path, temporary or Path(tempfile.gettempdir()))
                file.close()
                file = plain
            with explained(path):
                return cls(file, str(path))
        except BaseException:
            file.close()
            raise

    def names(self) -> list[str]:
        """All member names, sorted."""
        return sorted(self._members)

    def has(self, name: str) -> bool:
        """Whether the name leads, through links inside the archive, to a regular file."""
        return self._resolve(name) is not None

    def size(self, name: str) -> int:
        """The member's length."""
        return self._member(name).size

    def chunks(self, name: str) -> Iterator[bytes]:
        """The member's bytes."""
        member = self._member(name)
        done = 0
        while done < member.size:
            with explained(self.where):
                piece = os.pread(self._file.fileno(), min(PIECE, member.size - done), member.offset + done)
            if not piece:
                raise CorruptImage(f"{self.where} ends inside {name}", context={"offset": str(member.offset + done)})
            done += len(piece)
            yield piece

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _member(self, name: str) -> _Member:
        member = self._resolve(name)
        if member is None:
            raise CorruptImage(f"{self.where} has no file {name}", context={"member": name})
        return member

    def _resolve(self, name: str) -> _Member | None:
        try:
            member = self._members.get(follow_links(name, self._read_link)[1:])
        except OSError:  # links in a circle
            return None
        return member if member is not None and member.kind in _REGULAR else None

    def _read_link(self, path: str) -> str | None:
        """Where a member leads: a hard link's target is a path from the archive's root."""
        member = self._members.get(path[1:])
        if member is None or member.kind not in (_SYMLINK, _HARD_LINK):
            return None
        return member.target if member.kind == _SYMLINK else f"/{member.target}"


def _normalise(name: str) -> str:
    return posixpath.normpath("/" + name)[1:].lstrip("/")


def _inflate_file(file: BinaryIO, path: Path, folder: Path) -> BinaryIO:
    """The decompressed archive in an unnamed temporary file, refused when it grows beyond what archives do."""
    limit = max(_ALWAYS_ALLOWED, _RATIO_LIMIT * os.fstat(file.fileno()).st_size)
    with explained(folder):
        target = tempfile.TemporaryFile(prefix="kedge-", buffering=0, dir=folder)
    written = 0
    try:
        with explained(folder):
            for piece in inflate(iter(lambda: file.read(PIECE), b""), where=str(path)):
                written += len(piece)
                if written > limit:
                    raise HostileImage(f"{path} expands to more than {_RATIO_LIMIT} times its size")
                target.write(piece)
    except BaseException:
        target.close()
        raise
    return target


def _scan(file: BinaryIO, where: str) -> Iterator[tuple[str, _Member]]:
    """Every member in order; stops at the end mark, or at the end of a file that lacks it."""
    end = os.fstat(file.fileno()).st_size
    offset = members = 0
    extra: dict[str, str] = {}
    while offset + _BLOCK <= end:
        header = os.pread(file.fileno(), _BLOCK, offset)
        if len(header) < _BLOCK or not any(header):
            return
        _check_header(header, offset, where)
        kind, size = header[156:157], _number(header[124:136], offset, where)
        size = _extended_size(extra, size, where) if kind not in (_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK) else size
        data = offset + _BLOCK
        if data + size > end:
            raise CorruptImage(
                f"{where} is cut short: a member of {size} bytes does not fit", context={"offset": str(offset)}
            )
        members += 1
        if members > _MAXIMUM_MEMBERS:
            raise HostileImage(f"{where} has more than {_MAXIMUM_MEMBERS} members")
        offset = data + -(-size // _BLOCK) * _BLOCK
        if kind in (_PAX, _LONG_NAME, _LONG_LINK):
            extra |= _read_extension(file, kind, data, size, where)
        elif kind != _PAX_GLOBAL:
            name = extra.get("path") or _name(header)
            target = extra.get("linkpath") or _text(header[157:257])
            yield _normalise(name), _Member(kind, data, size, target)
            extra = {}
    if offset == 0:
        raise CorruptImage(f"{where} is not a tar archive: it has only {end} bytes")


def _check_header(header: bytes, offset: int, where: str) -> None:
    stored = header[148:156].strip(b" \0")
    total = sum(header[:148]) + 8 * 32 + sum(header[156:])
    if not stored or not all(48 <= byte < 56 for byte in stored) or int(stored, 8) != total:
        what = "is not a tar archive" if offset == 0 else "is damaged: a member's checksum is wrong"
        raise CorruptImage(f"{where} {what}", context={"offset": str(offset)})
    if header[156:157] == _SPARSE:
        raise UnsupportedFormat(f"{where} contains a sparse member, which image archives do not have")


def _number(field: bytes, offset: int, where: str) -> int:
    """Octal text, or GNU's base-256 for what does not fit."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if not all(48 <= byte < 56 for byte in text):
        raise CorruptImage(f"{where}: a member's size is not a number", context={"offset": str(offset)})
    return int(text, 8) if text else 0


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _name(header: bytes) -> str:
    prefix = _text(header[345:500]) if header[257:262] == b"ustar" and header[263:265] == b"00" else ""
    return f"{prefix}/{_text(header[:100])}" if prefix else _text(header[:100])


def _extended_size(extra: dict[str, str], size: int, where: str) -> int:
    text = extra.get("size")
    if text is None:
        return size
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise CorruptImage(f"{where}: a pax header gives the size '{text[:40]}'")
    return int(text)


def _read_extension(file: BinaryIO, kind: bytes, offset: int, size: int, where: str) -> dict[str, str]:
    if size > _MAXIMUM_EXTENSION:
        raise HostileImage(f"{where} has a member header of {size} bytes", context={"offset": str(offset)})
    data = os.pread(file.fileno(), size, offset)
    if kind in (_LONG_NAME, _LONG_LINK):
        return {"path" if kind == _LONG_NAME else "linkpath": _text(data)}
    return _read_pax(data, offset, where)


def _read_pax(data: bytes, offset: int, where: str) -> dict[str, str]:
    """Records `LENGTH KEYWORD=VALUE\\n`, of which three matter."""
    records: dict[str, str] = {}
    place = 0
    while place < len(data):
        space = data.find(b" ", place, place + 8)
        digits = data[place:space] if space > 0 else b""
        length = int(digits) if digits.isdigit() else 0
        if length < 5 or place + length > len(data):
            raise CorruptImage(f"{where}: a pax header is damaged", context={"offset": str(offset + place)})
        keyword, _, value = data[space + 1 : place + length - 1].partition(b"=")
        if keyword in (b"path", b"linkpath", b"size"):
            records[keyword.decode()] = _text(value)
        place += length
    return records
