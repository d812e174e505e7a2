# SPDX-License-Identifier: BSD-3-Clause
"""SIF reader, writer and edits: real files, golden bytes, and a file that is wrong does not leave."""

from __future__ import annotations

import hashlib
import io
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.errors import CorruptImage, FaultyImage, KedgeError, OutputExists, UnsupportedFormat, UsageError
from kedge.image.formats.identify import FileKind, identify_bytes
from kedge.image.formats.sif import writer
from kedge.image.formats.sif.data_object import DataObject, encode_name
from kedge.image.formats.sif.edit import append_object, append_objects, create_empty, delete_object, set_primary
from kedge.image.formats.sif.layout import (
    DATA_OFFSET,
    DESCRIPTOR,
    HEADER,
    NO_TIME,
    DataType,
    FileSystem,
    HashType,
    Header,
    PartitionType,
    SifDescriptor,
    pack_partition_extra,
    pack_signature_extra,
)
from kedge.image.formats.sif.reader import SifReader, describe_type
from kedge.image.formats.sif.writer import SifBuilder
from tests.builders.rows import each_row
from tests.builders.sif import build_sif, fixture_path

FINGERPRINT = bytes.fromhex("433FE984155206BD962725E20E8713472A879943")


def open_fixture(name: str) -> SifReader:
    return SifReader(io.BytesIO(fixture_path(name).read_bytes()), name)


def read_bytes(data: bytes) -> SifReader:
    return SifReader(io.BytesIO(data), "test.sif")


# ---- reader


def test_layout_sizes_are_those_of_the_format() -> None:
    assert (HEADER.size, DESCRIPTOR.size, DATA_OFFSET) == (128, 585, 32176)


def test_reader_reads_file_of_singularity_3_8() -> None:
    reader = open_fixture("busybox_arm64.sif")
    assert reader.header.launch.rstrip(b"\0") == b"#!/usr/bin/env run-singularity\n"
    header = reader.header
    assert (header.data_offset, header.descriptors_free, header.architecture) == (32768, 43, "arm64")
    assert [d.data_type for d in reader.descriptors] == [0x4001, 0x4006, 0x4006, 0x4004, 0x4005]
    partition = reader.root_partition()
    assert (partition.offset, partition.size, partition.name) == (45056, 794624, "squashfs-309960939")
    assert reader.read_object(reader.descriptors[0]) == b"BootStrap: docker\nFrom: busybox:1.33.1\n"[:39]
    signature = reader.descriptors[4]
    assert (signature.group, signature.link, signature.links_group, signature.hash_type) == (0, 1, True, 1)
    assert signature.entity.hex().upper() == "1137E72E6816BFC06D9CAA0D15F3F4F4F14B03B2"


def test_reader_reads_deterministic_files_with_negative_times() -> None:
    reader = open_fixture("two-groups.sif")
    assert reader.header.created == NO_TIME
    assert [(d.group, d.file_system, d.architecture) for d in reader.descriptors] == [
        (1, FileSystem.RAW, "386"),
        (1, FileSystem.SQUASHFS, "386"),
        (2, FileSystem.EXT3, "amd64"),
    ]


def test_reader_open_object_is_a_file_of_its_own() -> None:
    reader = open_fixture("busybox_arm64.sif")
    with reader.open_object(reader.root_partition()) as window:
        assert window.read(4) == b"hsqs"
        assert window.seek(0, os.SEEK_END) == 794624
        window.seek(-3, os.SEEK_END)
        assert len(window.read(100)) == 3
        window.seek(0)
        assert (
            hashlib.sha256(window.read()).digest()
            == hashlib.sha256(b"".join(reader.chunks(reader.root_partition()))).digest()
        )


def test_reader_empty_file_has_nothing_to_run() -> None:
    with pytest.raises(UnsupportedFormat, match="no primary system partition"):
        open_fixture("empty.sif").primary_partition()


def test_reader_names_oci_sif() -> None:
    reader = read_bytes(build_sif([(DataType.OCI_ROOT_INDEX, b"{}", b"sha256:00"), (DataType.OCI_BLOB, b"x", b"")]))
    with pytest.raises(UnsupportedFormat, match="OCI-SIF") as caught:
        reader.primary_partition()
    assert "kedge pull" in (caught.value.hint or "")


@each_row("kind", [FileSystem.ENCRYPTED_SQUASHFS, FileSystem.GOCRYPTFS_SQUASHFS])
def test_reader_names_encrypted_partition(kind: int) -> None:
    extra = pack_partition_extra(kind, PartitionType.PRIMARY_SYSTEM, "amd64")
    reader = read_bytes(build_sif([(DataType.PARTITION, b"secret", extra)]))
    assert reader.primary_partition().file_system == kind
    with pytest.raises(UnsupportedFormat, match="encrypted"):
        reader.root_partition()


def test_reader_refuses_two_primary_partitions() -> None:
    extra = pack_partition_extra(1, PartitionType.PRIMARY_SYSTEM, "amd64")
    data = bytearray(build_sif([(DataType.PARTITION, b"a" * 10, extra), (DataType.PARTITION, b"b" * 10, b"")]))
    struct.pack_into("<ii3s", data, 4096 + 585 + 201, 1, 2, b"02\0")
    with pytest.raises(CorruptImage, match="2 primary partitions"):
        read_bytes(bytes(data)).primary_partition()


def test_reader_shows_unknown_types_as_numbers() -> None:
    reader = read_bytes(build_sif([(0x5001, b"x", b"")]))
    assert describe_type(reader.descriptors[0].data_type) == "Unknown (0x5001)"


def test_reader_escapes_names_that_are_no_text() -> None:
    data = bytearray(build_sif([(DataType.GENERIC, b"x", b"")]))
    data[4096 + 73 : 4096 + 80] = b"a\xff\x1b[31m"
    assert read_bytes(bytes(data)).descriptors[0].name == "a\\xff\\x1b[31m"


@each_row(
    ("offset", "form", "value", "field"),
    [
        (80, "<q", -1, "descriptors_free"),
        (80, "<q", 49, "descriptors_free"),
        (88, "<q", 1 << 40, "descriptors_total"),
        (88, "<q", 49, "table_size"),
        (96, "<q", 64, "table_offset"),
        (96, "<q", 1 << 50, "table_offset"),
        (96, "<q", (1 << 63) - 1, "table_offset"),
        (104, "<q", 584, "table_size"),
        (112, "<q", -5, "data_offset"),
        (120, "<q", 1 << 33, "data_size"),
        (4096 + 5, "<I", 0, "descriptor 1 id"),
        (4096 + 585 + 5, "<I", 1, "descriptor 2 id"),
        (4096 + 17, "<q", -1, "descriptor 1 offset"),
        (4096 + 17, "<q", 100, "descriptor 1 offset"),
        (4096 + 17, "<q", 5000, "descriptor 1 offset"),
        (4096 + 25, "<q", -1, "descriptor 1 size"),
        (4096 + 25, "<q", 1 << 62, "descriptor 1 size"),
        (4096 + 33, "<q", -7, "descriptor 1 padded_size"),
        (4096 + 585 + 17, "<q", DATA_OFFSET + 1, "descriptor 2 offset"),
    ],
)
def test_reader_names_field_and_offset(offset: int, form: str, value: int, field: str) -> None:
    data = bytearray(build_sif([(DataType.GENERIC, b"x" * 50, b""), (DataType.GENERIC, b"y" * 50, b"")]))
    struct.pack_into(form, data, offset, value)
    with pytest.raises(CorruptImage) as caught:
        read_bytes(bytes(data))
    assert caught.value.context["field"] == field
    assert caught.value.context["offset"].isdecimal()


def test_reader_refuses_object_too_large_for_memory() -> None:
    reader = read_bytes(build_sif([(DataType.DEFFILE, b"x" * 100, b"")]))
    with pytest.raises(UnsupportedFormat, match="100 bytes"):
        reader.read_object(reader.descriptors[0], limit=99)


def test_reader_unknown_version_is_named() -> None:
    data = bytearray(build_sif([]))
    data[42:44] = b"02"
    with pytest.raises(UnsupportedFormat, match="version '02'"):
        read_bytes(bytes(data))


@each_row(
    ("start", "kind"),
    [
        (b"", FileKind.EMPTY),
        (b"hsqs" + bytes(100), FileKind.SQUASHFS),
        (b"#!/usr/bin/env run-singularity\nhsqs" + bytes(100), FileKind.SQUASHFS),
        (bytes(1080) + b"\x53\xef" + bytes(100), FileKind.EXT),
        (b"\x1f\x8b\x08\0", FileKind.GZIP),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", FileKind.HTML),
        (b"\xef\xbb\xbf\n <HTML>", FileKind.HTML),
        (b'{"errors":[{"code":"UNAUTHORIZED"}]}', FileKind.JSON),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", FileKind.LFS_POINTER),
        (b"name\0" + bytes(252) + b"ustar\x0000" + bytes(200), FileKind.TAR),
        (b"#!/bin/sh\necho", FileKind.SCRIPT),
        (b"just words\n", FileKind.TEXT),
        (b"\x01\x02\x03\x00" * 50, FileKind.UNKNOWN),
    ],
)
def test_reader_says_what_the_file_really_is(start: bytes, kind: FileKind) -> None:
    assert identify_bytes(start) is kind
    with pytest.raises(KedgeError) as caught:
        read_bytes(start)
    assert kind.value in caught.value.message


# ---- writer


def write_example(seed: bytes = b"seed") -> bytes:
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="arm64", created=1_700_000_000, seed=seed)
    builder.add_object(DataType.DEFFILE, b"bootstrap: docker\nfrom: x\n\n")
    builder.add_object(DataType.GENERIC_JSON, b"{}", "inspect-metadata.json")
    offset = builder.begin_partition("rootfs")
    assert offset % 4096 == 0
    assert file.tell() == offset
    file.write(b"hsqs" + bytes(8188))
    builder.end_partition(8192)
    builder.finish()
    return file.getvalue()


def test_writer_golden_header_and_table() -> None:
    data = write_example()
    assert data[:32] == b"#!/usr/bin/env run-singularity\n\0"
    assert data[32:48] == b"SIF_MAGIC\x0001\x0004\0"
    assert data[64:128] == struct.pack(
        "<8q", 1_700_000_000, 1_700_000_000, 45, 48, 4096, 28080, 32176, 32768 + 8192 - 32176
    )
    first = data[4096 : 4096 + 585]
    assert first[:73] == struct.pack(
        "<iBIIIqqqqqqq", 0x4001, 1, 1, 0xF0000001, 0, 32176, 27, 27, 1_700_000_000, 1_700_000_000, 0, 0
    )
    third = data[4096 + 2 * 585 : 4096 + 3 * 585]
    assert third[:41] == struct.pack("<iBIIIqqq", 0x4004, 1, 3, 0xF0000001, 0, 32768, 8192, 8192 + 32768 - (32176 + 29))
    assert third[201:212] == struct.pack("<ii3s", 1, 2, b"04\0")
    assert set(data[4096 + 3 * 585 : 32176]) == {0}
    assert len(data) == 32768 + 8192


def test_writer_is_deterministic_and_seed_changes_identity_only() -> None:
    assert write_example() == write_example()
    other = write_example(b"other")
    assert other[48:64] != write_example()[48:64]
    assert other[64:] == write_example()[64:]
    identity = write_example()[48:64]
    assert (identity[6] >> 4, identity[8] >> 6) == (5, 2)  # a proper version 5 UUID


def test_writer_refuses_unfinished_or_doubled_partition() -> None:
    builder = SifBuilder(io.BytesIO(), architecture="amd64", created=0)
    builder.begin_partition()
    with pytest.raises(UsageError):
        builder.add_object(DataType.GENERIC, b"")
    with pytest.raises(UsageError):
        builder.finish()
    builder.end_partition(0)
    builder.begin_partition()
    with pytest.raises(UsageError, match="one primary"):
        builder.end_partition(0)


def test_writer_refuses_more_objects_than_slots() -> None:
    builder = SifBuilder(io.BytesIO(), architecture="amd64", created=0)
    for _ in range(48):
        builder.add_object(DataType.GENERIC, b"x")
    with pytest.raises(UsageError, match="48"):
        builder.add_object(DataType.GENERIC, b"x")


@each_row("name", ["é" * 100, "x" * 128, "x" * 127, "日本" * 30])
def test_writer_cuts_long_names_between_characters(name: str) -> None:
    field = encode_name(name)
    assert len(field) == 128
    assert field[-1] == 0
    assert name.startswith(field.rstrip(b"\0").decode())


# ---- edits


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.sif"
    path.write_bytes(write_example())
    path.chmod(0o750)
    return path


def load(path: Path) -> SifReader:
    return SifReader(io.BytesIO(path.read_bytes()), str(path))


def signature() -> DataObject:
    extra = pack_signature_extra(HashType.SHA256, FINGERPRINT)
    return DataObject(DataType.SIGNATURE, b"-----BEGIN", group=0, link=1, links_group=True, extra=extra)


def test_edit_appends_signature(image: Path) -> None:
    before = image.read_bytes()
    descriptor = append_object(image, signature(), now=5)
    reader = load(image)
    assert reader.find(descriptor.id) == descriptor
    assert (descriptor.id, descriptor.offset, descriptor.group_field) == (4, len(before), 0xF0000000)
    assert (descriptor.link_field, descriptor.entity, descriptor.hash_type) == (0xF0000001, FINGERPRINT, 1)
    assert reader.read_object(descriptor) == b"-----BEGIN"
    assert (reader.header.modified, reader.header.descriptors_free) == (5, 44)
    assert image.read_bytes()[DATA_OFFSET : len(before)] == before[DATA_OFFSET:]
    assert image.stat().st_mode & 0o7777 == 0o750


def test_edit_leaves_other_names_of_the_file_alone(image: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cached.sif"
    os.link(image, cached)
    before = cached.read_bytes()
    append_object(image, signature())
    assert cached.read_bytes() == before
    assert len(load(image).descriptors) == 4


def test_edit_follows_symbolic_link(image: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.sif"
    link.symlink_to(image)
    append_object(link, signature())
    assert link.is_symlink()
    assert len(load(image).descriptors) == 4


def test_edit_append_takes_first_free_slot_and_aligns_partitions(image: Path) -> None:
    append_object(image, DataObject(DataType.GENERIC, b"abc", "one"))
    delete_object(image, 2)
    extra = pack_partition_extra(FileSystem.RAW, PartitionType.DATA, "arm64")
    added = append_object(image, DataObject(DataType.PARTITION, io.BytesIO(b"z" * 5000), "data", extra=extra))
    assert (added.id, added.slot, added.offset % 4096, added.size) == (2, 1, 0, 5000)
    assert load(image).read_object(added) == b"z" * 5000


def test_edit_append_with_alignment(image: Path) -> None:
    append_object(image, DataObject(DataType.GENERIC, b"abc"))
    added = append_object(image, DataObject(DataType.GENERIC, b"abc", alignment=512))
    assert added.offset % 512 == 0
    assert added.padded_size == 3 + 509
    with pytest.raises(UsageError, match="power of two"):
        append_object(image, DataObject(DataType.GENERIC, b"abc", alignment=3))


def test_edit_append_several_is_all_or_nothing(image: Path) -> None:
    before = image.read_bytes()
    extra = pack_partition_extra(FileSystem.RAW, PartitionType.PRIMARY_SYSTEM, "arm64")
    items = [DataObject(DataType.GENERIC, b"abc"), DataObject(DataType.PARTITION, b"", extra=extra)]
    with pytest.raises(UsageError, match="primary"):
        append_objects(image, items)
    assert image.read_bytes() == before
    assert sorted(p.name for p in image.parent.iterdir()) == ["image.sif"]


def test_edit_delete_last_object_shortens_file(image: Path) -> None:
    before = image.read_bytes()
    append_object(image, DataObject(DataType.GENERIC, b"abc" * 1000), now=7)
    delete_object(image, 4, now=1_700_000_000)
    assert image.read_bytes() == before


def test_edit_delete_erases_the_bytes(image: Path) -> None:
    delete_object(image, 1)
    assert b"bootstrap" not in image.read_bytes()
    assert [d.id for d in load(image).descriptors] == [2, 3]


def test_edit_delete_of_primary_clears_architecture(image: Path) -> None:
    delete_object(image, 3)
    assert load(image).header.architecture == "unknown"


def test_edit_set_primary_swaps_types_and_architecture(image: Path) -> None:
    extra = pack_partition_extra(FileSystem.SQUASHFS, PartitionType.SYSTEM, "amd64")
    append_object(image, DataObject(DataType.PARTITION, b"hsqs", extra=extra))
    set_primary(image, 4)
    reader = load(image)
    assert reader.primary_partition().id == 4
    assert reader.find(3).partition_type == PartitionType.SYSTEM
    assert reader.header.architecture == "amd64"
    with pytest.raises(UnsupportedFormat, match="not a partition"):
        set_primary(image, 1)


def test_edit_keeps_old_layout(tmp_path: Path) -> None:
    path = tmp_path / "old.sif"
    path.write_bytes(fixture_path("busybox_arm64.sif").read_bytes())
    before = path.read_bytes()
    added = append_object(path, DataObject(DataType.GENERIC, b"abc"))
    assert (added.id, added.offset) == (6, len(before))
    after = path.read_bytes()
    assert after[128 : 4096 + 5 * 585] == before[128 : 4096 + 5 * 585]
    assert after[32768 : len(before)] == before[32768:]


def test_edit_refuses_full_table(image: Path) -> None:
    append_objects(image, [DataObject(DataType.GENERIC, b"x") for _ in range(45)])
    with pytest.raises(UsageError, match="in use"):
        append_object(image, DataObject(DataType.GENERIC, b"x"))


def test_edit_by_many_at_once_loses_nothing(image: Path) -> None:
    def add(number: int) -> None:
        append_object(image, DataObject(DataType.GENERIC, b"x" * number, f"object {number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(20)))
    reader = load(image)
    names = {descriptor.name for descriptor in reader.descriptors[3:]}
    assert names == {f"object {number}" for number in range(20)}


def test_create_empty_matches_real_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "new.sif"
    create_empty(path, now=0)
    real = fixture_path("empty.sif").read_bytes()
    ours = path.read_bytes()
    assert ours[80:] == real[80:]
    assert ours[32:48] == real[32:48]
    assert path.stat().st_mode & 0o777 == 0o755
    with pytest.raises(OutputExists):
        create_empty(path)


def write_sif() -> bytes:
    file = io.BytesIO()
    builder = SifBuilder(file, architecture="arm64", created=1)
    builder.add_object(DataType.DEFFILE, b"bootstrap: none\n")
    builder.begin_partition()
    file.write(b"hsqs" + bytes(8188))
    builder.end_partition(8192)
    builder.finish()
    return file.getvalue()


HEADERS: dict[str, Callable[[Header], Header]] = {
    "data_size": lambda it: replace(it, data_size=it.data_size - 1),
    "descriptors_free": lambda it: replace(it, descriptors_free=it.descriptors_free + 1),
    "architecture": lambda it: replace(it, architecture_code=b"02\0"),
    "table_offset": lambda it: replace(it, table_offset=it.table_offset + 1),
}
DESCRIPTORS: dict[str, Callable[[SifDescriptor], SifDescriptor]] = {
    "offset": lambda it: replace(it, offset=it.offset + 1),
    "size": lambda it: replace(it, size=it.size + 1),
    "id": lambda it: replace(it, id=1),
}


def test_a_sif_that_is_in_order_passes() -> None:
    assert write_sif()[32:42] == b"SIF_MAGIC\0"


@pytest.mark.parametrize("name", HEADERS)
def test_a_wrong_header_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = SifBuilder._make_header
    monkeypatch.setattr(SifBuilder, "_make_header", lambda self: HEADERS[name](make(self)))
    with pytest.raises(FaultyImage, match="bug in kedge"):
        write_sif()


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_wrong_descriptor_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = SifDescriptor.pack
    change = DESCRIPTORS[name]
    monkeypatch.setattr(
        writer.SifDescriptor, "pack", lambda self: pack(change(self) if self.data_type == DataType.PARTITION else self)
    )
    with pytest.raises(FaultyImage, match="bug in kedge"):
        write_sif()
