# SPDX-License-Identifier: BSD-3-Clause
"""Damaged and crafted SIF files: each is read, or refused by a named error, quickly and without much memory."""

from __future__ import annotations

import io
import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import KedgeError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object, delete_object
from kedge.image.formats.sif.layout import DATA_OFFSET, DESCRIPTOR, DataType, pack_partition_extra
from kedge.image.formats.sif.listing import format_header, format_list, format_object, list_json
from kedge.image.formats.sif.reader import SifReader
from tests.builders.sif import all_fixtures, build_sif

EXTREMES = (-1, 0, 1, 127, 4096, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
OUTCOMES = {"ok", "corrupt-image", "unsupported-format"}
SECONDS = 2.0  # of this process: other work on the machine does not count
MEMORY = 64 << 20


def read_everything(data: bytes) -> str:
    """Do all a user can do with a file; the outcome is 'ok' or the error's reference."""
    try:
        reader = SifReader(io.BytesIO(data), "bad.sif")
        format_header(reader.header)
        format_list(reader.descriptors)
        list_json(reader)
        for descriptor in reader.descriptors:
            format_object(descriptor)
            for _ in reader.chunks(descriptor):
                pass
        reader.root_partition()
    except KedgeError as problem:
        return problem.reference if "bad.sif" in problem.message else f"an error that does not name the file: {problem}"
    return "ok"


def seed_files() -> list[tuple[str, bytes]]:
    extra = pack_partition_extra(1, 2, "amd64")
    ours = build_sif([(DataType.DEFFILE, b"bootstrap", b""), (DataType.PARTITION, b"hsqs" + bytes(4092), extra)])
    return [("ours", ours), *((path.name, path.read_bytes()[:60_000]) for path in all_fixtures())]


def make_corpus() -> Iterator[tuple[str, bytes]]:
    """Every fixture cut at telling places, with bits flipped and number fields set to extremes."""
    for name, data in seed_files():
        for length in (0, 1, 31, 41, 64, 127, 128, 2048, 4096, 4097, 4681, 20_000, DATA_OFFSET - 1, len(data) - 1):
            yield f"{name} cut to {length}", data[:length]
        chance = random.Random(name)
        for number in range(12):
            damaged = bytearray(data)
            for _ in range(1 + number % 3):
                place = chance.choice([chance.randrange(128), 4096 + chance.randrange(4 * 585)])
                damaged[place] ^= 1 << chance.randrange(8)
            yield f"{name} flipped {number}", bytes(damaged)
        for offset in range(64, 128, 8):
            damaged = bytearray(data)
            struct.pack_into("<q", damaged, offset, chance.choice(EXTREMES))
            yield f"{name} header {offset}", bytes(damaged)
        for field in (17, 25, 33, 41):
            damaged = bytearray(data)
            struct.pack_into("<q", damaged, 4096 + field, chance.choice(EXTREMES))
            yield f"{name} descriptor {field}", bytes(damaged)


CORPUS = list(make_corpus())


def test_sif_corpus_gives_named_errors_in_bounded_time_and_memory() -> None:
    assert len(CORPUS) >= (250 if all_fixtures() else 30)
    tracemalloc.start()
    outcomes: dict[str, int] = {}
    try:
        for label, data in CORPUS:
            tracemalloc.reset_peak()
            begun = time.process_time()
            outcome = read_everything(data)
            assert time.process_time() - begun < SECONDS, label
            assert tracemalloc.get_traced_memory()[1] < MEMORY + len(data), label
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    finally:
        tracemalloc.stop()
    assert outcomes["corrupt-image"] > 10
    assert set(outcomes) <= OUTCOMES


def test_sif_corpus_edits_leave_damaged_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "bad.sif"
    for label, data in CORPUS[::5]:
        path.write_bytes(data)
        try:
            append_object(path, DataObject(DataType.GENERIC, b"x"), now=0)
            reader = SifReader(io.BytesIO(path.read_bytes()), str(path))
            assert reader.read_object(reader.descriptors[-1]) is not None, label
        except KedgeError:
            assert path.read_bytes() == data, label
        assert [child.name for child in tmp_path.iterdir()] == ["bad.sif"], label


def test_sif_edit_of_file_that_claims_data_in_its_table(tmp_path: Path) -> None:
    path = tmp_path / "bad.sif"
    data = bytearray(build_sif([]))
    struct.pack_into("<q", data, 112, 0)
    path.write_bytes(bytes(data))
    descriptor = append_object(path, DataObject(DataType.GENERIC, b"x" * 100), now=0)
    assert descriptor.offset >= DATA_OFFSET
    delete_object(path, descriptor.id, now=0)
    assert not SifReader(io.BytesIO(path.read_bytes()), "x").descriptors


def test_sif_sparse_giant_with_a_false_count_is_cheap(tmp_path: Path) -> None:
    path = tmp_path / "giant.sif"
    data = bytearray(build_sif([]))
    struct.pack_into("<qq", data, 80, 0, 1 << 30)
    struct.pack_into("<q", data, 104, (1 << 30) * 585)
    path.write_bytes(bytes(data))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    begun = time.process_time()
    with path.open("rb") as file, pytest.raises(KedgeError, match="descriptors_total"):
        SifReader(file)
    assert time.process_time() - begun < SECONDS


def test_sif_file_that_shrinks_while_it_is_read() -> None:
    file = io.BytesIO(build_sif([(DataType.GENERIC, b"x" * 10_000, b"")]))
    reader = SifReader(file, "shrinking.sif")
    file.truncate(DATA_OFFSET + 5)
    with pytest.raises(KedgeError, match="ends inside object 1"):
        reader.read_object(reader.descriptors[0])


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=DESCRIPTOR.size, max_size=DESCRIPTOR.size))
def test_sif_random_descriptor(noise: bytes) -> None:
    data = bytearray(build_sif([(DataType.GENERIC, b"x" * 50, b"")]))
    data[4096 + DESCRIPTOR.size : 4096 + 2 * DESCRIPTOR.size] = noise
    assert read_everything(bytes(data)) in OUTCOMES


def test_sif_text_shown_has_no_control_characters() -> None:
    data = bytearray(build_sif([(DataType.OCI_BLOB, b"x", b"sha256:\x1b[2J\n")]))
    struct.pack_into("20s", data, 0, b"#!/bin/\x1b]0;owned\x07\n\n")
    struct.pack_into("20s", data, 4096 + 73, b"\x1b[31mname\r\n")
    reader = SifReader(io.BytesIO(bytes(data)), "x")
    text = format_header(reader.header) + format_list(reader.descriptors) + format_object(reader.descriptors[0])
    assert all(character.isprintable() or character == "\n" for character in text)
