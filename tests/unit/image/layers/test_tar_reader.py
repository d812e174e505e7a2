# SPDX-License-Identifier: BSD-3-Clause
"""The tar reader: every dialect and field, read from pieces of any size. No services, no root."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge.base.tree import NodeKind
from kedge.errors import CorruptImage, HostileImage
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.tar_reader import Member, TarReader
from tests.builders import layers as build
from tests.builders.layers import MemorySink
from tests.builders.rows import each_row


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[place : place + size] for place in range(0, len(data), size))


def read(tar: bytes, size: int = 1 << 20, options: FlattenOptions | None = None) -> list[tuple[Member, bytes]]:
    reader = TarReader(pieces(tar, size), "layer test", Ledger(options or FlattenOptions()))
    sink = MemorySink()
    return [(member, reader.store(sink) if member.kind is NodeKind.FILE else b"") for member in reader]  # type: ignore[misc]


def read_one(*blocks: bytes) -> tuple[Member, bytes]:
    [(member, data)] = read(build.layer(*blocks))
    return member, data


def test_reader_gives_all_kinds_of_members() -> None:
    tar = build.layer(
        build.folder("d", mode=0o1777, owner=(3, 4), mtime=99),
        build.file("d/f", b"hello", mode=0o4755, owner=(1, 2), mtime=7),
        build.hard_link("d/h", "/d/f"),
        build.symlink("d/s", "../../etc"),
        build.device("d/c", 1, 3),
        build.device("d/b", 8, 70000, b"4"),
        build.fifo("d/p"),
    )
    found = {member.path: (member, data) for member, data in read(tar)}
    folder, regular = found[b"d"][0], found[b"d/f"][0]
    assert (folder.kind, folder.mode, folder.uid, folder.gid, folder.mtime) == (NodeKind.DIRECTORY, 0o1777, 3, 4, 99)
    assert (regular.kind, regular.mode, regular.uid, regular.gid, regular.mtime) == (NodeKind.FILE, 0o4755, 1, 2, 7)
    assert found[b"d/f"][1] == b"hello"
    assert (found[b"d/h"][0].kind, found[b"d/h"][0].target) == (None, b"d/f")
    assert (found[b"d/s"][0].kind, found[b"d/s"][0].target) == (NodeKind.SYMLINK, b"../../etc")
    assert (found[b"d/c"][0].kind, found[b"d/c"][0].rdev) == (NodeKind.CHARACTER_DEVICE, os.makedev(1, 3))
    assert (found[b"d/b"][0].kind, found[b"d/b"][0].rdev) == (NodeKind.BLOCK_DEVICE, os.makedev(8, 70000))
    assert found[b"d/p"][0].kind is NodeKind.FIFO


@each_row("size", [1, 7, 100, 511, 512, 513, 4096, 1 << 20])
def test_reader_does_not_care_how_the_stream_is_cut(size: int) -> None:
    tar = build.layer(
        build.file("small", b"s" * 700),
        build.pax({b"path": b"long/" * 50 + b"name"}) + build.file("x", b"p"),
        build.file("large", bytes(range(256)) * 300),
        build.file("empty"),
    )
    found = [(member.path, data) for member, data in read(tar, size)]
    assert found == [
        (b"small", b"s" * 700),
        (b"long/" * 50 + b"name", b"p"),
        (b"large", bytes(range(256)) * 300),
        (b"empty", None),
    ]


@each_row("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_reader_agrees_with_python_tarfile(form: int) -> None:
    buffer = io.BytesIO()
    names = ["a", "b" * 100, "dir/" * 30 + "file", "prefix/" * 20 + "x" * 90]
    if form != tarfile.USTAR_FORMAT:
        names += ["n" * 200, "ünïcode/" * 20]
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name in names:
            info = tarfile.TarInfo(name.rstrip("/"))
            info.size, info.mtime, info.uid, info.gid = len(name), 1_600_000_000, 1234, 70_000
            archive.addfile(info, io.BytesIO(name.encode()[: info.size]))
    found = read(buffer.getvalue())
    assert [member.path.decode() for member, _ in found] == [name.rstrip("/") for name in names]
    assert {(m.uid, m.gid, m.mtime) for m, _ in found} == {(1234, 70_000, 1_600_000_000)}
    assert [data for _, data in found] == [name.encode()[: len(name)] for name in names]


def test_reader_takes_v7_folders_by_their_slash() -> None:
    member, _ = read_one(build.header(b"old/", b"\0", fields={257: bytes(8)}))
    assert (member.kind, member.path) == (NodeKind.DIRECTORY, b"old")


def test_reader_takes_contiguous_files() -> None:
    assert read_one(build.entry("c", b"7", b"data"))[1] == b"data"


@each_row("name", ["./a/b", "a//b", "a/./b", "././a/b", "a/b"])
def test_reader_cleans_names(name: str) -> None:
    assert read_one(build.file(name))[0].path == b"a/b"


@each_row("name", ["/", "./", ".", "//", "././"])
def test_reader_knows_the_root_by_its_names(name: str) -> None:
    member, _ = read_one(build.entry(name, b"5", mode=0o700))
    assert (member.parent, member.name, member.mode) == (b"", b"", 0o700)


def test_reader_reads_gnu_long_names_and_links() -> None:
    name, target = b"n" * 120 + b"/" + b"m" * 200, b"t/" * 400 + b"end"
    member, _ = read_one(build.long_name(name), build.long_name(target, b"K"), build.symlink("x", "y"))
    assert (member.path, member.target) == (name, target)


def test_reader_ignores_the_prefix_of_gnu_headers() -> None:
    member, _ = read_one(build.header(b"name", fields={257: b"ustar  \0", 345: b"00000000001"}))
    assert member.path == b"name"


@each_row(
    ("text", "seconds"),
    [(b"12", 12), (b"12.999", 12), (b"-1", -1), (b"-1.5", -2), (b"-1.000", -1), (b"0.1", 0), (b"5.", 5)],
)
def test_reader_rounds_pax_times_down(text: bytes, seconds: int) -> None:
    assert read_one(build.pax({b"mtime": text}), build.file("x"))[0].mtime == seconds


def test_reader_takes_sizes_and_owners_from_pax() -> None:
    records = {b"size": b"5", b"uid": b"4000000000", b"gid": b"3000000000"}
    member, data = read_one(build.pax(records), build.header(b"x"), build.padded(b"12345"))
    assert (member.uid, member.gid, member.size, data) == (4_000_000_000, 3_000_000_000, 5, b"12345")


def test_reader_reads_base_256_numbers() -> None:
    fields = {108: b"\x80\0\0\0\xff\0\0\0", 124: b"\x80" + bytes(10) + b"\x03", 136: b"\xff" * 12}
    member, data = read_one(build.header(b"x", fields=fields), build.padded(b"abc"))
    assert (member.uid, member.mtime, data) == (0xFF000000, -1, b"abc")


def test_reader_ends_octal_numbers_at_their_nul() -> None:
    member, _ = read_one(build.header(b"x", fields={100: b"0640\0zz\0"}))
    assert member.mode == 0o640


def test_reader_lets_local_records_win_over_global_ones_and_empty_ones_delete() -> None:
    tar = build.layer(
        build.pax({b"mtime": b"100", b"uid": b"7"}, b"g"),
        build.file("a", mtime=1),
        build.pax({b"mtime": b"200"}) + build.file("b", mtime=2),
        build.pax({b"mtime": b""}) + build.file("c", mtime=3),
    )
    assert [(m.path, m.mtime, m.uid) for m, _ in read(tar)] == [(b"a", 100, 7), (b"b", 200, 7), (b"c", 3, 7)]


def test_reader_keeps_xattrs_of_both_spellings_sorted() -> None:
    capability = b"\x01\0\0\x02\0\x04\0\0" + bytes(12)
    records = {
        b"SCHILY.xattr.user.z": b"last",
        b"LIBARCHIVE.xattr.user.a%20b": b"AAEC",
        b"LIBARCHIVE.xattr.user.z": b"AAEC",
        b"SCHILY.xattr.security.capability": capability,
        b"SCHILY.acl.access": b"user::rw-",
    }
    member, _ = read_one(build.pax(records), build.file("x"))
    assert member.xattrs == ((b"security.capability", capability), (b"user.a b", b"\0\1\2"), (b"user.z", b"last"))


def test_reader_forgets_extended_headers_after_their_member() -> None:
    tar = build.layer(build.file("a", xattrs={b"user.x": b"1"}), build.file("b"))
    assert [member.xattrs for member, _ in read(tar)] == [((b"user.x", b"1"),), ()]


def test_reader_accepts_signed_checksums() -> None:
    block = build.header("grün".encode() * 10)
    signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + b" " * 8 + block[156:])
    member, _ = read_one(block[:148] + b"%06o\0 " % signed + block[156:])
    assert member.name == "grün".encode() * 10


@each_row("end", [b"", bytes(512), bytes(1024), bytes(10240), bytes(1024) + b"trailing garbage"])
def test_reader_tolerates_a_missing_or_long_end_of_archive(end: bytes) -> None:
    assert [member.name for member, _ in read(build.layer(build.file("x", b"1"), end=end))] == [b"x"]


def test_reader_takes_an_empty_stream_for_an_empty_archive() -> None:
    assert read(b"") == []


@each_row(
    ("name", "path"),
    [
        *(("/etc/passwd", b"etc/passwd"), ("//x", b"x"), ("/x", b"x"), ("a/b/../c", b"a/c"), ("a/..", b"")),
        ("/a/./../b", b"b"),
        ("d/" * 2000 + "x", b"d/" * 2000 + b"x"),
    ],
)
def test_reader_takes_names_as_paths_from_the_root(name: str, path: bytes) -> None:
    member, _ = read_one(build.file(name))
    assert member.path == path
    link, _ = read_one(build.hard_link("h", name))
    assert link.target == path


def test_reader_knows_folders_again_however_they_are_spelled() -> None:
    spelled = ["/a/x", "a/b/../x", "a/x", "/x", "./a/y", "a/b/../y", "b/../x"]
    found = [member.path for member, _ in read(build.layer(*map(build.file, spelled)))]
    assert found == [b"a/x", b"a/x", b"a/x", b"x", b"a/y", b"a/y", b"x"]


@each_row(
    ("blocks", "text"),
    [
        (lambda: build.long_name(b"a\0b") + build.file("x"), "NUL"),
        (lambda: build.header(b""), "without a name"),
        (lambda: build.entry("x", b"2"), "without a target"),
        (lambda: build.entry("x", b"1"), "without a target"),
        (lambda: build.pax({b"uid": b"x"}) + build.file("x"), "PAX uid"),
        (lambda: build.pax({b"uid": b"4294967295"}) + build.file("x"), "no user or group id"),
        (lambda: build.pax({b"size": b"-1"}) + build.file("x"), "PAX size"),
        (lambda: build.pax({b"mtime": b"nan"}) + build.file("x"), "PAX mtime"),
        (lambda: build.pax({b"SCHILY.xattr.user.x": bytes(65537)}) + build.file("x"), "more than Linux allows"),
        (lambda: build.pax({b"LIBARCHIVE.xattr.user.x": b"!"}) + build.file("x"), "base64"),
        (lambda: build.pax({b"path": b"x"}), "without the member"),
        (lambda: build.device("x", 0o7777777, 0), "no such device"),
        (lambda: build.file("x") + bytes(512) + build.file("y"), "single block of zeros"),
        (lambda: build.header(b"h", b"x", size=9) + build.padded(b"99 path=x"), "malformed"),
        (lambda: build.header(b"h", b"x", size=8) + build.padded(b"8 nokey\n"), "without a key"),
    ],
)
def test_reader_names_what_is_corrupt(blocks: Callable[[], bytes], text: str) -> None:
    with pytest.raises(CorruptImage, match=text) as caught:
        read(build.layer(blocks()))
    assert "offset" in caught.value.context


# -- sparse files, made by GNU tar itself and by hand --------------------------------------------------------------

SPARSE_ARGUMENTS = {
    "gnu": ["--format=gnu"],
    "pax-0.0": ["--format=pax", "--sparse-version=0.0"],
    "pax-0.1": ["--format=pax", "--sparse-version=0.1"],
    "pax-1.0": ["--format=pax", "--sparse-version=1.0"],
}


@pytest.mark.parametrize("form", SPARSE_ARGUMENTS)
@pytest.mark.parametrize("size", [1 << 20, 700])
def test_reader_expands_what_gnu_tar_stores_sparsely(tmp_path: Path, form: str, size: int) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as out:
        for index in range(60):  # more pieces than one header and one extension block hold
            out.seek(index * 65536)
            out.write(b"%04d" % index)
        out.truncate(60 * 65536 + 12345)
    argv = ["tar", "-C", str(tmp_path), "-cSf", "-", *SPARSE_ARGUMENTS[form], "sparse"]
    made = subprocess.run(argv, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"this tar cannot make sparse archives: {made.stderr[:100]!r}")
    assert len(made.stdout) < 500_000, "tar stored the holes"
    [(member, data)] = read(made.stdout, size)
    assert member.path == b"sparse"
    assert data == path.read_bytes()


def test_reader_refuses_sparse_maps_without_end() -> None:
    empty = bytes(504) + b"\1" + bytes(7)
    tar = build.header(b"x", b"S", fields={482: b"\1"}) + empty * 200
    with pytest.raises(HostileImage, match="more than 100 entries"):
        read(tar, options=FlattenOptions(maximum_entries=100))


@each_row("numbers", [b"0,5,3,5", b"0,5,100,5", b"1", b"a,b", b"5,-1"])
def test_reader_refuses_impossible_sparse_maps(numbers: bytes) -> None:
    records = {b"GNU.sparse.map": numbers, b"GNU.sparse.size": b"20"}
    with pytest.raises(CorruptImage):
        read(build.layer(build.pax(records), build.file("x", b"0123456789")))


def test_reader_counts_entries_names_and_implied_folders() -> None:
    tar = build.layer(*(build.file(f"{'d/' * 20}{index}/f") for index in range(20)))
    with pytest.raises(HostileImage, match="more than 100 entries"):
        read(tar, options=FlattenOptions(maximum_entries=100))
    with pytest.raises(HostileImage, match="names and attributes"):
        read(tar, options=FlattenOptions(maximum_metadata=200))
