# SPDX-License-Identifier: BSD-3-Clause
"""The database of RPM in its three forms: SQLite (since 2020), Berkeley DB (CentOS 7 and 8), and SUSE's own (ndb).

All hold one header for each package: a table of tags, and behind it their values. Everything is read from untrusted
bytes; a package whose header is damaged is passed over.
Formats: https://rpm-software-management.github.io/rpm/manual/format_header.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from kedge.compat.packages.package import RPM, InstalledPackage, is_reasonable

if TYPE_CHECKING:
    from kedge.system.views import View

_DIRECTORIES = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
_LARGEST = 512 << 20
_LARGEST_HEADER = 64 << 20
_MOST_PACKAGES = 100_000
_NAME, _VERSION, _RELEASE, _EPOCH, _ARCHITECTURE = 1000, 1001, 1002, 1003, 1022
_DIRECTORY_INDEXES, _BASE_NAMES, _DIRECTORY_NAMES = 1116, 1117, 1118
_INTEGER, _TEXTS = 4, (6, 8, 9)
# Berkeley DB, https://docs.oracle.com/database/bdb181: pages of a hash table, large values on pages of their own
_HASH_MAGIC, _HASH_PAGES, _OVERFLOW_PAGE, _PAGE_HEADER, _ON_OTHER_PAGE = 0x00061561, (2, 13), 7, 26, 3
_NDB_MAGIC, _NDB_SLOT, _NDB_BLOB, _NDB_PAGE = b"RpmP", b"Slot", b"BlbS", 4096


def list_rpm_packages(view: View) -> Iterator[InstalledPackage]:
    """The packages of the first database that can be read."""
    for directory in _DIRECTORIES:
        for name, read in (("rpmdb.sqlite", _read_sqlite), ("Packages", _read_hash), ("Packages.db", _read_ndb)):
            data = view.read(f"{directory}/{name}", _LARGEST)
            if data:
                packages = [package for blob in read(data) if (package := _read_header(blob))]
                yield from packages
                if packages:
                    return


def _read_sqlite(data: bytes) -> Iterator[bytes]:
    try:
        import sqlite3  # late: few images have such a database, and some builds of Python have no such module
    except ImportError:
        return
    plain = data[:18] + b"\1\1" + data[20:]  # not in WAL mode, which would want a second file
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(plain)
            rows = database.execute("SELECT blob FROM Packages ORDER BY hnum").fetchmany(_MOST_PACKAGES)
    except (sqlite3.Error, ValueError):  # ValueError: a message of SQLite that is no text
        return
    yield from (row[0] for row in rows if isinstance(row[0], bytes))


def _read_hash(data: bytes) -> Iterator[bytes]:
    """Every value that lies on pages of its own; keys and the small ones say nothing here."""
    for order in ("<", ">"):
        if len(data) >= 512 and struct.unpack_from(f"{order}I", data, 12)[0] == _HASH_MAGIC:
            size = struct.unpack_from(f"{order}I", data, 20)[0]
            if 512 <= size <= 65536:
                yield from _read_hash_pages(data, size, order)


def _read_hash_pages(data: bytes, size: int, order: str) -> Iterator[bytes]:
    for start in range(size, len(data) - size + 1, size):
        if data[start + 25] not in _HASH_PAGES:
            continue
        count = min(struct.unpack_from(f"{order}H", data, start + 20)[0], (size - _PAGE_HEADER) // 2)
        for place in range(1, count, 2):
            offset = struct.unpack_from(f"{order}H", data, start + _PAGE_HEADER + 2 * place)[0]
            if offset + 12 <= size and data[start + offset] == _ON_OTHER_PAGE:
                page, length = struct.unpack_from(f"{order}II", data, start + offset + 4)
                yield _join_pages(data, size, order, (page, length))


def _join_pages(data: bytes, size: int, order: str, value: tuple[int, int]) -> bytes:
    page, length = value
    joined = bytearray()
    while page and len(joined) < min(length, _LARGEST_HEADER) and (page + 1) * size <= len(data):
        start = page * size
        following, _, used = struct.unpack_from(f"{order}IHH", data, start + 16)
        if data[start + 25] != _OVERFLOW_PAGE or not 0 < used <= size - _PAGE_HEADER:
            break
        joined += data[start + _PAGE_HEADER : start + _PAGE_HEADER + used]
        page = following
    return bytes(joined[:length])


def _read_ndb(data: bytes) -> Iterator[bytes]:
    if data[:4] != _NDB_MAGIC or len(data) < 32:
        return
    pages = struct.unpack_from("<I", data, 12)[0]
    for start in range(32, min(pages * _NDB_PAGE, len(data) - 15), 16):
        magic, index, block, _ = struct.unpack_from("<4sIII", data, start)
        place = block * 16
        if magic != _NDB_SLOT or not index or place + 16 > len(data):
            continue
        magic, owner, _, length = struct.unpack_from("<4sIII", data, place)
        if magic == _NDB_BLOB and owner == index:
            yield data[place + 16 : place + 16 + min(length, _LARGEST_HEADER)]


def _read_header(blob: bytes) -> InstalledPackage | None:
    try:
        tags = _read_tags(blob)
    except (struct.error, ValueError):
        return None
    name, version, release = (_first(tags.get(tag)) for tag in (_NAME, _VERSION, _RELEASE))
    epoch = _first(tags.get(_EPOCH))
    whole = f"{epoch}:{version}-{release}" if epoch not in ("", "0") else f"{version}-{release}"
    if name == "gpg-pubkey" or not is_reasonable(name) or not is_reasonable(whole):
        return None
    return InstalledPackage(
        RPM, name, whole, files=tuple(_list_files(tags)), architecture=_first(tags.get(_ARCHITECTURE))
    )


def _first(values: list[str] | list[int] | None) -> str:
    return str(values[0]) if values else ""


def _read_tags(blob: bytes) -> dict[int, list[str] | list[int]]:
    count, length = struct.unpack_from(">II", blob)
    start = 8 + 16 * count
    if count > 100_000 or start + length > len(blob):
        raise ValueError("a header that is cut off")
    values = blob[start : start + length]
    tags: dict[int, list[str] | list[int]] = {}
    for place in range(8, start, 16):
        tag, kind, offset, amount = struct.unpack_from(">IIII", blob, place)
        if offset > length or amount > 10_000_000:
            raise ValueError("a tag outside of the header")
        if kind == _INTEGER:
            tags[tag] = list(struct.unpack_from(f">{amount}I", values, offset))
        elif kind in _TEXTS:
            texts = values[offset:].split(b"\0", amount)[:amount]
            tags[tag] = [text.decode("utf-8", "surrogateescape") for text in texts]
    return tags


def _list_files(tags: dict[int, list[str] | list[int]]) -> Iterator[str]:
    directories = [str(name) for name in tags.get(_DIRECTORY_NAMES, [])]
    for name, index in zip(tags.get(_BASE_NAMES, []), tags.get(_DIRECTORY_INDEXES, []), strict=False):
        if isinstance(index, int) and index < len(directories):
            yield f"{directories[index]}{name}"
