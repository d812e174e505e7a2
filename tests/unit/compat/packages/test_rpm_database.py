# SPDX-License-Identifier: BSD-3-Clause
"""RPM's database in its three forms, made here byte by byte."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from kedge.compat.packages.rpm_database import list_rpm_packages
from kedge.system.views import TableView
from tests.builders.rows import each_row


def make_header(name: str, version: str = "2.34", release: str = "60.el9", epoch: int | None = None) -> bytes:
    """A header with the tags that are read."""
    tags: list[tuple[int, int, list[str] | list[int]]] = [
        (1000, 6, [name]), (1001, 6, [version]), (1002, 6, [release]), (1022, 6, ["x86_64"]), (1116, 4, [0, 1]),
        (1117, 8, ["libc.so.6", "ldd"]), (1118, 8, ["/usr/lib64/", "/usr/bin/"]),
    ]  # fmt: skip
    if epoch is not None:
        tags.append((1003, 4, [epoch]))
    index, data = b"", b""
    for tag, kind, values in tags:
        data += bytes(-len(data) % 4) if kind == 4 else b""
        index += struct.pack(">IIII", tag, kind, len(data), len(values))
        for value in values:
            data += struct.pack(">I", value) if isinstance(value, int) else value.encode() + b"\0"
    return struct.pack(">II", len(tags), len(data)) + index + data


def make_sqlite(headers: list[bytes], folder: Path) -> bytes:
    path = folder / "rpmdb.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        database.executemany("INSERT INTO Packages (blob) VALUES (?)", [(header,) for header in headers])
    database.close()
    data = bytearray(path.read_bytes())
    data[18:20] = b"\2\2"  # as RPM leaves it: WAL
    return bytes(data)


def make_berkeley(headers: list[bytes], order: str = "<", size: int = 512) -> bytes:
    """A hash table: its metadata page, a page of entries, and pages for each value."""
    room = size - 26
    pages: list[bytes] = []
    items: list[bytes] = []
    for header in headers:
        first = 2 + len(pages)
        pieces = [header[start : start + room] for start in range(0, len(header), room)]
        for number, piece in enumerate(pieces):
            following = first + number + 1 if number + 1 < len(pieces) else 0
            page = struct.pack(f"{order}8xIIIHHBB", first + number, 0, following, 1, len(piece), 0, 7)
            pages.append((page + piece).ljust(size, b"\0"))
        items += [b"\1key!", struct.pack(f"{order}B3xII", 3, first, len(header))]
    offsets, body = [], b""
    for item in items:
        body = item + body
        offsets.append(size - len(body))
    entries = struct.pack(f"{order}8xIIIHHBB", 1, 0, 0, len(items), offsets[-1], 0, 13)
    entries += struct.pack(f"{order}{len(offsets)}H", *offsets)
    metadata = struct.pack(f"{order}8xIIIIBB", 0, 0x00061561, 9, size, 0, 8).ljust(512, b"\0")
    return metadata.ljust(size, b"\0") + entries + bytes(size - len(entries) - len(body)) + body + b"".join(pages)


def make_ndb(headers: list[bytes]) -> bytes:
    slots, blobs = b"", b""
    for index, header in enumerate(headers, 1):
        blob = struct.pack("<4sIII", b"BlbS", index, 1, len(header)) + header
        slots += struct.pack("<4sIII", b"Slot", index, (4096 + len(blobs)) // 16, -(-len(blob) // 16))
        blobs += blob + bytes(-len(blob) % 16)
    head = struct.pack("<4sIII16x", b"RpmP", 0, 1, 1)
    return (head + slots).ljust(4096, b"\0") + blobs


def test_rpm_sqlite_and_ndb_list_packages(tmp_path: Path) -> None:
    data = make_sqlite([make_header("glibc"), make_header("gpg-pubkey"), make_header("bind", epoch=32)], tmp_path)
    packages = list(list_rpm_packages(TableView({"/usr/lib/sysimage/rpm/rpmdb.sqlite": data})))
    assert [(package.name, package.version) for package in packages] == [
        ("glibc", "2.34-60.el9"),
        ("bind", "32:2.34-60.el9"),
    ]
    assert packages[0].files == ("/usr/lib64/libc.so.6", "/usr/bin/ldd")
    assert packages[0].architecture == "x86_64"
    view = TableView({"/usr/lib/sysimage/rpm/Packages.db": make_ndb([make_header("glibc"), make_header("zypper")])})
    assert [package.name for package in list_rpm_packages(view)] == ["glibc", "zypper"]


@each_row("order", ["<", ">"])
def test_rpm_berkeley_lists_packages(order: str) -> None:
    long = make_header("kernel", release="1." + "x" * 150)
    view = TableView({"/var/lib/rpm/Packages": make_berkeley([make_header("glibc"), long], order)})
    assert [package.name for package in list_rpm_packages(view)] == ["glibc", "kernel"]


def test_rpm_damaged_databases_have_no_packages(tmp_path: Path) -> None:
    headers = [make_header("glibc")]
    whole = {"rpmdb.sqlite": make_sqlite(headers, tmp_path), "Packages": make_berkeley(headers)}
    for name, data in {**whole, "Packages.db": make_ndb(headers)}.items():
        for cut in range(1, len(data), 97):
            list(list_rpm_packages(TableView({f"/var/lib/rpm/{name}": data[:cut]})))
            list(list_rpm_packages(TableView({f"/var/lib/rpm/{name}": data[:cut] + b"\xff" * (len(data) - cut)})))
