# SPDX-License-Identifier: BSD-3-Clause
"""Plain files are read in runs, and whatever a header says, the general reader would have said the same."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.tree import NodeKind
from kedge.errors import HostileImage, KedgeError
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.tar_reader import TarReader
from tests.builders import layers as build
from tests.builders.layers import MemorySink
from tests.builders.rows import each_row

Found = tuple[object, ...]


def read(tar: bytes, *, size: int = 1 << 20, runs: bool) -> tuple[list[Found], int]:
    """All members, or the error at last; and how many of them came in runs."""
    pieces = (tar[place : place + size] for place in range(0, len(tar), size))
    reader, sink = TarReader(pieces, "layer test", Ledger(FlattenOptions())), MemorySink()
    found: list[Found] = []
    plain = 0
    try:
        for member in reader:
            data = reader.store(sink) if member.kind is NodeKind.FILE else member.target
            identity = (member.mode, member.uid, member.gid)
            found.append((member.kind, member.parent, member.name, identity, member.mtime, member.size, data or b""))
            while runs and (run := reader.read_plain_files()):
                plain += len(run.names)
                columns = (run.names, run.identities, run.times, run.sizes, run.starts)
                for name, identity, mtime, length, start in zip(*columns, strict=True):
                    content = bytes(reader.piece[start : start + length])
                    found.append((NodeKind.FILE, run.parent, name, identity, mtime, length, content))
    except KedgeError as problem:
        found.append((type(problem), str(problem), problem.context))
    return found, plain


def read_both(tar: bytes, size: int = 1 << 20) -> int:
    """How many files come in runs; the general reader alone says the same of all."""
    found, plain = read(tar, size=size, runs=True)
    assert found == read(tar, size=size, runs=False)[0]
    return plain


def files(folder: str, count: int, **options: object) -> list[bytes]:
    return [build.file(f"{folder}/{number}", b"x" * (number * 97 % 1500), **options) for number in range(count)]


def test_files_of_a_directory_come_in_one_run() -> None:
    tar = build.layer(build.folder("d"), *files("d", 50), build.symlink("d/s", "0"), *files("d", 9))
    assert read_both(tar) == 50 - 1 + 9  # the first is the general reader's, which learns the owner from it


@each_row(("size", "least"), [(1, 0), (511, 0), (513, 0), (1024, 0), (5000, 60), (100_000, 95)])
def test_runs_end_where_the_piece_does(size: int, least: int) -> None:
    tar = build.layer(build.folder("d"), *files("d", 50), build.folder("e"), *files("e", 50))
    assert least <= read_both(tar, size) < 99


@each_row("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_of_usual_tars_are_plain(form: int) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as tar:
        for folder in ("usr", "usr/share", "usr/share/" + "long" * 20 + "/" + "name" * 20):
            for number in range(20):
                info = tarfile.TarInfo(f"{folder}/{number}")
                info.size, info.mtime, info.mode, info.uname = number, 1_700_000_000, 0o640, "someone"
                tar.addfile(info, io.BytesIO(b"y" * number))
    plain = read_both(target.getvalue())
    # ustar has the long directory in its prefix; the others write extended headers for such names
    assert plain == 3 * 19 if form == tarfile.USTAR_FORMAT else plain == 2 * 19


@each_row(
    "block",
    [
        *(build.whiteout("d/x"), build.opaque("d"), build.file("d/.", b"1"), build.file("d/..", b"1")),
        *(build.file("d/", b"1"), build.file("d//x", b"1"), build.file("d/e/x", b"1"), build.file("e/x", b"1")),
        *(build.file("d/x", b"1", owner=(5, 5)), build.entry("d/x", b"7", b"1"), build.entry("d/x", b"\0", b"1")),
        build.hard_link("d/x", "d/1"),
        build.file("d/x", b"1", xattrs={b"user.a": b"b"}),
        build.long_name(b"d/" + b"n" * 120) + build.file("d/short", b"1"),
    ],
)
def test_whatever_is_not_plain_ends_a_run(block: bytes) -> None:
    assert read_both(build.layer(build.folder("d"), *files("d", 5), block, *files("d", 5))) == 4 + 5


def test_names_at_the_edge_of_their_field_are_plain() -> None:
    for length in (97, 98):
        tar = build.layer(build.folder("d"), *files("d", 5), build.file("d/" + "n" * length, b"1"), *files("d", 5))
        assert read_both(tar) == 4 + 1 + 5
    edge = "e" * 99 + "/"  # as long as the field: no room for a name
    assert not read_both(build.layer(build.file(edge, b"1"), build.file(edge, b"1")))


def test_global_records_leave_no_file_plain() -> None:
    assert not read_both(build.layer(build.folder("d"), build.pax({b"mtime": b"77"}, b"g"), *files("d", 5)))


def test_files_in_runs_are_counted() -> None:
    reader = TarReader(iter([build.layer(*files("d", 50))]), "layer test", Ledger(FlattenOptions(maximum_entries=40)))
    next(iter(reader))
    with pytest.raises(HostileImage, match="more than 40 entries"):
        reader.read_plain_files()


HEADER = build.file("d/x", b"content", mtime=77)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 511),
        st.one_of(st.integers(0, 255), st.sampled_from(b"\0 /.0178-+_x\x80\xff")),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_changed_headers_mean_the_same_to_both_readers(changes: dict[int, int], sealed: bool) -> None:
    block = bytearray(HEADER[:512])
    for place, value in changes.items():
        block[place] = value
    header = build.seal(bytes(block)) if sealed else bytes(block)
    read_both(build.layer(build.folder("d"), *files("d", 3), header + HEADER[512:], *files("d", 3)))


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=8), st.binary(min_size=12, max_size=12), st.integers(0, 2))
def test_odd_numbers_mean_the_same_to_both_readers(short: bytes, long: bytes, place: int) -> None:
    fields = {0: {124: long}, 1: {136: long}, 2: {108: short}}[place]
    odd = build.file("d/x", b"content", fields=fields)
    read_both(build.layer(build.folder("d"), *files("d", 3), odd, *files("d", 3)))
