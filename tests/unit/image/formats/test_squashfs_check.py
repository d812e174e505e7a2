# SPDX-License-Identifier: BSD-3-Clause
"""The look at a whole image: what is in order passes, whoever wrote it; what is not is found, and said where."""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.errors import CorruptImage, FaultyImage, HostileImage, KedgeError, UnsupportedFormat
from kedge.image.formats.squashfs import content_writer, inode_writer, layout, table_writer, writer
from kedge.image.formats.squashfs.check_image import CheckedImage, CheckOptions, check_image
from kedge.image.formats.squashfs.reader import SquashReader
from tests.builders.faulty_writer import add_as_before
from tests.builders.rows import each_row
from tests.builders.squashfs_images import add_folder, write_image
from tests.requirements import require_program
from tests.wording import assert_says

OWN = CheckOptions(is_own=True)
BLOCK = 131072


def look(data: bytes, options: CheckOptions = OWN) -> CheckedImage:
    return check_image(io.BytesIO(data), 0, len(data), options)


def fill_files(
    count: int, *, folders: int = 1, size: int = 50, has_empty: bool = True
) -> Callable[[ContentSink], Node]:
    """So many small files."""

    def fill(sink: Any) -> Node:
        root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 1)
        for number in range(folders):
            folder = add_folder(root, b"folder%d" % number)
            piece = memoryview(random.Random(number).randbytes(count * size))
            sizes = [size if index % 7 or not has_empty else 0 for index in range(count)]
            tokens = [sink.add(piece[index * size :][:used]) if used else None for index, used in enumerate(sizes)]
            for index, token in enumerate(tokens):
                node = folder.children[b"file%06d" % index] = Node(NodeKind.FILE, 0o644, index % 3, 0, 1)
                node.size, node.content = sizes[index], token
        return root

    return fill


def fill_blocks(sink: Any) -> Node:
    """Three files of exactly one block: what an earlier version put into fragments."""
    root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 1)
    piece = memoryview(random.Random(26).randbytes(3 * BLOCK))
    tokens = [sink.add(piece[start : start + BLOCK]) for start in range(0, 3 * BLOCK, BLOCK)]
    for name, token in zip((b"a", b"b", b"c"), tokens, strict=True):
        node = root.children[name] = Node(NodeKind.FILE, 0o644, 0, 0, 1)
        node.size, node.content = BLOCK, token
    return root


# -- what is in order passes


@each_row("codec", ["zstd", "gzip", "lz4", "none"])
@each_row("with_contents", [False, True])
def test_own_images_pass(codec: str, with_contents: bool) -> None:
    found = look(write_image(codec=codec), CheckOptions(is_own=True, with_contents=with_contents, threads=2))
    assert (found.inodes, found.files) == (29, 17)


@each_row(("count", "folders"), [(0, 1), (1, 1), (20_000, 1), (300, 60)])
def test_many_files_pass(count: int, folders: int) -> None:
    found = look(write_image(fill_files(count, folders=folders)))
    assert found == CheckedImage(1 + folders * (1 + count), folders * count, found.fragments)


MKSQUASHFS = [
    *([], ["-comp", "zstd"], ["-comp", "lz4"], ["-comp", "xz"], ["-comp", "lzo"], ["-no-fragments"], ["-no-exports"]),
    *(["-always-use-fragments"], ["-noI"], ["-noD", "-noF"], ["-b", "4096"], ["-b", "1M"], ["-nopad"]),
]


@pytest.fixture(scope="module")
def odd_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    noise = random.Random(3)
    (tree / "many").mkdir()
    for number in range(1500):
        size = noise.choice([0, 1, 100, 4096, BLOCK - 1, BLOCK, BLOCK + 1]) if number < 21 else 20
        (tree / "many" / f"{number}-{'x' * (number % 40)}").write_bytes(noise.randbytes(size))
    for name, size in (("holes", 5_000_000), ("hole", 100_000)):
        with (tree / name).open("wb") as file:
            file.truncate(size)
    (tree / "empty").mkdir()
    (tree / "link").symlink_to("many")
    os.link(tree / "many" / "6-xxxxxx", tree / "other name")
    os.mkfifo(tree / "pipe")
    return tree


@pytest.mark.parametrize("options", MKSQUASHFS, ids=lambda options: " ".join(options) or "gzip")
def test_images_of_mksquashfs_pass(options: list[str], odd_tree: Path, tmp_path: Path) -> None:
    image = tmp_path / "image.sqsh"
    command = [require_program("mksquashfs"), str(odd_tree), str(image), "-no-progress", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with image.open("rb") as file:
        assert check_image(file, 0, None, CheckOptions()).files == 1502
        assert check_image(file, 0, None, CheckOptions(with_contents=True, threads=2)).files == 1502


# -- what is wrong is found


def read_all(data: bytes) -> None:
    with SquashReader(io.BytesIO(data)) as reader:
        for _, node in walk(reader.read_tree()):
            if node.kind is NodeKind.FILE:
                assert sum(map(len, reader.chunks(node))) == node.size


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("codec", "with_contents"), [("none", False), ("zstd", True)])
def test_what_passes_with_any_bit_flipped_can_be_read(codec: str, with_contents: bool, step: int) -> None:
    """Of the superblock every byte; of the tables each `step`-th."""
    data = write_image(codec=codec)
    start = layout.SUPERBLOCK.unpack_from(data)[15]  # of the inode table
    noise, found = random.Random(26), 0
    places = [*range(layout.SUPERBLOCK_SIZE + 10), *range(start, len(data), step)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << noise.randrange(8)
        try:
            look(bytes(damaged), CheckOptions(is_own=True, with_contents=with_contents))
        except (CorruptImage, HostileImage, UnsupportedFormat):
            found += 1
        else:
            read_all(bytes(damaged))
    used = layout.SUPERBLOCK.unpack_from(data)[12] - start
    assert found > 0.6 * used / step  # the rest are times, modes, owners, targets, devices and letters of names


@each_row("missing", [1, 4096, 100_000])
def test_an_image_that_is_cut_short_is_found(missing: int) -> None:
    data = write_image()
    with pytest.raises(CorruptImage):
        look(data[:-missing])


def test_padding_that_is_not_zero_is_found() -> None:
    data = bytearray(write_image())
    data[-1] = 1
    with pytest.raises(CorruptImage, match="padding"):
        look(bytes(data))
    look(bytes(data), CheckOptions())  # no reader minds


def test_the_fault_of_the_version_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_writer.ContentStore, "add", add_as_before)
    with pytest.raises(FaultyImage, match="bug in kedge") as caught:
        write_image(fill_blocks)
    assert_says(caught.value.message, "image/whole-blocks-lies-fragment", 131072, 0)
    assert caught.value.context["table"] == "inode table"
    assert caught.value.context["path"] in ("/a", "/b", "/c")


@each_row("codec", ["zstd", "gzip", "lz4", "none"])
def test_images_with_that_fault_are_found_later(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(content_writer.ContentStore, "add", add_as_before)
        patch.setattr(writer.SquashWriter, "_look_back", lambda *_: None)
        data = write_image(fill_blocks, codec=codec)
    with pytest.raises(CorruptImage):
        look(data, CheckOptions())


# -- each rule, by a writer that breaks it


def shift_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table_writer.IdTable, "pack", lambda _: struct.pack("<I", 0))
    patch.setattr(table_writer.IdTable, "__len__", lambda _: 1)


def shift_addresses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "_little_endian", lambda numbers: array("Q", [numbers[0], *numbers[:-1]]).tobytes())


def claim_fragment(field: int, value: int) -> Callable[[pytest.MonkeyPatch], None]:
    """The last fragment's entry says something else."""
    pack = writer.SquashWriter._pack_fragments

    def patched(self: Any) -> bytes:
        entries = pack(self)
        last = list(layout.FRAGMENT_ENTRY.unpack(entries[-layout.FRAGMENT_ENTRY.size :]))
        last[field] += value
        return entries[: -layout.FRAGMENT_ENTRY.size] + layout.FRAGMENT_ENTRY.pack(*last)

    return lambda patch: patch.setattr(writer.SquashWriter, "_pack_fragments", patched)


def change_inodes(kind: int, record: struct.Struct, field: int, change: Callable[[int], int]) -> Any:
    """Inodes of a type have another value in a field."""

    def apply(patch: pytest.MonkeyPatch) -> None:
        add = table_writer.MetadataWriter.add

        def patched(self: Any, data: bytes) -> int:
            if len(data) >= record.size and data[:2] == struct.pack("<H", kind) and not len(data) % 4:
                fields = list(record.unpack(data[: record.size]))
                fields[field] = change(fields[field])
                data = record.pack(*fields) + data[record.size :]
            return add(self, data)

        patch.setattr(table_writer.MetadataWriter, "add", patched)

    return apply


def change_listing(method: Callable[[inode_writer.Children], inode_writer.Children]) -> Any:
    add = inode_writer.ListingWriter.add

    def patched(self: Any, children: inode_writer.Children) -> None:
        add(self, method(children) if len(children.names) > 1 else children)

    return lambda patch: patch.setattr(inode_writer.ListingWriter, "add", patched)


def with_names(children: inode_writer.Children, names: list[bytes]) -> inode_writer.Children:
    return inode_writer.Children(names, children.addresses, children.numbers, children.kinds)


def change_index(patch: pytest.MonkeyPatch) -> None:
    pack = inode_writer.Listing.pack_index
    patch.setattr(inode_writer.Listing, "pack_index", lambda self, table: b"\1" + pack(self, table)[1:])


def write_inode_twice(patch: pytest.MonkeyPatch) -> None:
    close = table_writer.MetadataWriter.close

    def patched(self: Any) -> bytes:
        if not done:  # the first table is that of the inodes
            self.add(layout.IPC.pack(6, 0o600, 0, 0, 1, 1, 1))
        done.append(self)
        return close(self)

    done: list[object] = []
    patch.setattr(table_writer.MetadataWriter, "close", patched)


def end_elsewhere(patch: pytest.MonkeyPatch) -> None:
    blocks = inode_writer.TreeTables._block_list

    def patched(self: Any, node: Node, content: Any) -> tuple[int, int, bytes]:
        start, sparse, words = blocks(self, node, content)
        return start + (1 << 30), sparse, words

    patch.setattr(inode_writer.TreeTables, "_block_list", patched)


def overlap_blocks(patch: pytest.MonkeyPatch) -> None:
    blocks = inode_writer.TreeTables._block_list

    def patched(self: Any, node: Node, content: Any) -> tuple[int, int, bytes]:
        start, sparse, words = blocks(self, node, content)
        return start - 1 if node.size == 400_000 + 1 and start > 200 else start, sparse, words

    patch.setattr(inode_writer.TreeTables, "_block_list", patched)


def lose_word(patch: pytest.MonkeyPatch) -> None:
    blocks = inode_writer.TreeTables._block_list
    patch.setattr(inode_writer.TreeTables, "_block_list", lambda *args: (*blocks(*args)[:2], blocks(*args)[2][:-4]))


def set_superblock(field: str, change: Callable[[int], int]) -> Any:
    pack = layout.Superblock.pack

    def patched(self: layout.Superblock) -> bytes:
        object.__setattr__(self, field, change(getattr(self, field)))
        return pack(self)

    return lambda patch: patch.setattr(layout.Superblock, "pack", patched)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "owners that are not there": (shift_ids, "has owner"),
    "export table": (shift_addresses, "addresses of the inodes"),
    "a fragment behind the data": (claim_fragment(0, 1 << 40), "not within the data"),
    "a fragment elsewhere": (claim_fragment(0, -1), "zstd data is damaged"),
    "a fragment larger than a block": (claim_fragment(1, BLOCK), "more than a block|not within the data"),
    "a fragment that gives less": (claim_fragment(1, layout.BLOCK_STORED), "fragment"),
    "no such fragment": (change_inodes(2, layout.BASIC_FILE, 7, lambda it: it + 9 if it < 9 else it), "of fragment"),
    "beyond the fragment": (change_inodes(2, layout.BASIC_FILE, 8, lambda it: it + BLOCK), "which gives"),
    "a larger file": (change_inodes(2, layout.BASIC_FILE, 9, lambda it: it + BLOCK), "SquashFS"),
    "inode numbers twice": (change_inodes(2, layout.BASIC_FILE, 5, lambda it: it & ~1), "is taken"),
    "inode numbers too large": (change_inodes(2, layout.BASIC_FILE, 5, lambda it: it + 10_000), "is taken, or above"),
    "unknown types": (change_inodes(2, layout.BASIC_FILE, 0, lambda _: 15), "type 15"),
    "other types": (change_inodes(6, layout.IPC, 0, lambda _: 7), "differ in type"),
    "attributes that are not there": (
        change_inodes(9, layout.EXTENDED_FILE, 12, lambda it: it + 7 & 0xFFFFFFFF),
        "set",
    ),
    "names of a file": (change_inodes(9, layout.EXTENDED_FILE, 9, lambda it: it + 1), "names"),
    "holes": (change_inodes(9, layout.EXTENDED_FILE, 8, lambda it: it + (1 << 40)), "in holes"),
    "links of directories": (change_inodes(1, layout.BASIC_DIRECTORY, 7, lambda it: it + 1), "links and parent"),
    "parents": (change_inodes(1, layout.BASIC_DIRECTORY, 10, lambda it: it + 1), "links and parent"),
    "listings elsewhere": (change_inodes(1, layout.BASIC_DIRECTORY, 6, lambda it: it + 5), "listing"),
    "listings too long": (change_inodes(1, layout.BASIC_DIRECTORY, 8, lambda it: it + 5), "listing"),
    "an inode too many": (write_inode_twice, "is taken"),
    "names not in order": (change_listing(lambda it: with_names(it, list(reversed(it.names)))), "not in order"),
    "equal names": (change_listing(lambda it: with_names(it, [it.names[0]] * len(it.names))), "not all different"),
    "blocks behind the data": (end_elsewhere, "not within the data"),
    "blocks in others": (overlap_blocks, "zstd data is damaged|lies in something else"),
    "a block too few": (lose_word, "SquashFS"),
    "the root": (set_superblock("root", lambda it: it + 1), "root"),
    "more inodes announced": (set_superblock("inodes", lambda it: it + 1), "SquashFS"),
    "fewer inodes announced": (set_superblock("inodes", lambda it: it - 1), "SquashFS"),
    "used bytes": (set_superblock("used", lambda it: it - 8), "SquashFS"),
}


@each_row("name", FAULTS)
def test_a_writer_that_is_wrong_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply, message = FAULTS[name]
    with monkeypatch.context() as patch:
        apply(patch)
        with pytest.raises(FaultyImage, match=message) as caught:
            write_image()
    assert caught.value.context.get("table"), "where"


def test_an_index_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    change_index(monkeypatch)
    with pytest.raises(FaultyImage, match="its index points at byte"):
        write_image(fill_files(20_000))


def test_columns_and_single_inodes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the middle of twenty thousand that lies beyond its fragment is found, and named."""
    pack = content_writer.pack_small

    def patched(*args: Any) -> bytes:
        records = bytearray(pack(*args))
        struct.pack_into("<I", records, 32 * 12_346 + 24, 131_060)  # the offset of a file that is not empty
        return bytes(records)

    monkeypatch.setattr(content_writer, "pack_small", patched)
    monkeypatch.setattr(inode_writer, "pack_small", patched)
    with pytest.raises(FaultyImage, match=r"ends at byte 131110 .*file012346"):
        write_image(fill_files(20_000, has_empty=False))


def test_contents_that_do_not_decompress_are_found() -> None:
    data = bytearray(write_image(codec="gzip"))
    data[layout.SUPERBLOCK_SIZE + 10_000] ^= 0xFF
    look(bytes(data))  # no contents are read
    with pytest.raises(KedgeError):
        look(bytes(data), CheckOptions(with_contents=True))
