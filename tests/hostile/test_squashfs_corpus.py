# SPDX-License-Identifier: BSD-3-Clause
"""Damaged and forged SquashFS images: each is read, or refused by name, in bounded time and memory.

Needs nothing but Python. The corpus is generated: cuts, flipped bits, forged fields.
"""

from __future__ import annotations

import io
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.errors import CorruptImage, HostileImage, KedgeError, UnsupportedFormat
from kedge.image.formats.squashfs import layout
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.matrices import EVERY
from tests.builders.rows import each_row
from tests.builders.squashfs_images import add_file, add_folder, add_special, fill_sample, mixed_bytes, write_image

CODECS = ["none", "zstd", "gzip:1", "lz4"]
CONTENT_LIMIT = 32 << 20  # of what is read of a forged image: files may claim to be large, reading them is a choice
MEMORY_LIMIT = 150 << 10  # kilobytes by which the whole corpus may make this process grow


def fill_small(sink: ContentSink) -> Node:
    """Every kind of inode in an image of few bytes, so that most flipped bits hit something that matters."""
    root = Node(NodeKind.DIRECTORY, mtime=5)
    folder = add_folder(root, b"folder")
    add_folder(folder, b"inner")
    add_file(sink, folder, b"large", mixed_bytes(1, 9000))
    add_file(sink, folder, b"small", b"small content")
    add_file(sink, root, b"attributes", b"x").xattrs = ((b"user.a", b"value"),)
    root.children[b"hard"] = folder.children[b"small"]
    add_special(root, b"link", NodeKind.SYMLINK, target=b"folder/small")
    add_special(root, b"device", NodeKind.CHARACTER_DEVICE, rdev=259)
    add_special(root, b"pipe", NodeKind.FIFO, xattrs=((b"trusted.b", b"1"),))
    return root


def make_small(codec: str) -> bytes:
    return write_image(fill_small, codec=codec, block_size=4096)


SMALL = {codec: make_small(codec) for codec in CODECS}
PLAIN = SMALL["none"]
HEAD = layout.SUPERBLOCK.unpack_from(PLAIN)
INODES, DIRECTORIES = HEAD[15], HEAD[16]


def read_all(data: bytes, threads: int = 1) -> int:
    """Read everything of an image, up to a limit; returns the number of bytes."""
    total = 0
    with SquashReader(io.BytesIO(data), threads=threads) as reader:
        root = reader.read_tree()
        for path, node in walk(root):
            if path.count(b"/") < 5:
                reader.find(path)
            for chunk in reader.chunks(node) if node.kind is NodeKind.FILE else ():
                total += len(chunk)
                if total > CONTENT_LIMIT:
                    return total
    return total


def expect_bounded(data: bytes, threads: int = 1) -> bool:
    """Whether an image is accepted; anything but a KedgeError fails the test by itself."""
    start = time.process_time()
    try:
        read_all(data, threads)
        accepted = True
    except KedgeError:
        accepted = False
    assert time.process_time() - start < 10
    return accepted


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_LIMIT


@each_row("codec", CODECS)
def test_squashfs_every_cut_is_named(codec: str) -> None:
    image = SMALL[codec]
    used = layout.SUPERBLOCK.unpack_from(image)[12]
    for end in [*range(0, used, 37), used - 1]:
        with pytest.raises((CorruptImage, UnsupportedFormat)) as caught:
            read_all(image[:end])
        assert caught.value.message
    assert expect_bounded(image[:used])


@each_row("codec", CODECS)
def test_squashfs_a_cut_in_a_larger_image_is_named(codec: str) -> None:
    image = write_image(fill_sample, codec=codec)
    for end in range(96, len(image) - 4096, len(image) // 12):
        with pytest.raises(CorruptImage):
            read_all(image[:end], threads=2)


@EVERY
@each_row("codec", CODECS)
def test_squashfs_flipped_bits_are_bounded(codec: str, is_every: bool) -> None:
    chance = random.Random(f"flip {codec}")
    image = SMALL[codec]
    used = layout.SUPERBLOCK.unpack_from(image)[12]
    for number in range(1000 if is_every else 50):
        data = bytearray(image)
        for _ in range(1 + number % 3):
            data[chance.randrange(96, used)] ^= 1 << chance.randrange(8)
        expect_bounded(bytes(data), threads=1 + number % 2)


@EVERY
def test_squashfs_random_words_in_the_tables_are_bounded(is_every: bool) -> None:
    chance = random.Random("words")
    used = HEAD[12]
    for _ in range(2000 if is_every else 150):
        data = bytearray(PLAIN)
        value = chance.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x8000, 0xFFFF, chance.getrandbits(32)])
        struct.pack_into("<I", data, chance.randrange(INODES, used - 4), value)
        expect_bounded(bytes(data))


# Numbers of inodes and ids, sizes, flags, the version, and where the tables begin
FIELDS = (
    *((4, "<I"), (12, "<I"), (16, "<I"), (20, "<H"), (22, "<H"), (24, "<H"), (26, "<H"), (28, "<H"), (32, "<Q")),
    *((offset, "<Q") for offset in range(40, 88, 8)),
)
VALUES = (0, 1, 95, 4097, 0xFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 2, (1 << 64) - 1)


@EVERY
@each_row("offset,form", FIELDS)
def test_squashfs_forged_superblocks_are_bounded(offset: int, form: str, is_every: bool) -> None:
    for number, value in enumerate(VALUES):
        for image in SMALL.values() if is_every else [SMALL[CODECS[number % 4]]]:
            data = bytearray(image)
            struct.pack_into(form, data, offset, value & ((1 << 8 * struct.calcsize(form)) - 1))
            expect_bounded(bytes(data))


def forge(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(PLAIN)
    change(data)
    return bytes(data)


def find_entry(data: bytes | bytearray, name: bytes) -> int:
    """Where the entry of a name stands in the stored directory table."""
    return data.index(struct.pack("<H", len(name) - 1) + name, DIRECTORIES) - 6


def inode_of(data: bytes | bytearray, name: bytes) -> int:
    """Where the inode of a name stands in the stored inode table (of one metadata block)."""
    return INODES + 2 + int.from_bytes(data[find_entry(data, name) : find_entry(data, name) + 2], "little")


def rename(name: bytes, other: bytes) -> bytes:
    def change(data: bytearray) -> None:
        place = find_entry(data, name) + 8
        data[place : place + len(name)] = other

    assert len(name) == len(other)
    return forge(change)


@each_row("name", [b"fo/der", b"../etc", b"folde\0"])
def test_squashfs_names_that_leave_the_folder_are_hostile(name: bytes) -> None:
    with pytest.raises(HostileImage, match="name") as caught:
        read_all(rename(b"folder", name))
    assert caught.value.context["table"] == "directory table"


@each_row("name", [b".", b"..", b"/"])
def test_squashfs_dots_are_hostile(name: bytes) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        add_file(sink, root, b"q" * len(name), b"1")
        return root

    image = bytearray(write_image(fill, codec="none"))
    place = image.index(struct.pack("<H", len(name) - 1) + b"q" * len(name), 96) + 2
    image[place : place + len(name)] = name
    with pytest.raises(HostileImage, match="name"):
        read_all(bytes(image))


def test_squashfs_a_name_twice_is_hostile() -> None:
    with pytest.raises(HostileImage, match="twice"):
        read_all(rename(b"link", b"pipe"))


def test_squashfs_a_folder_in_itself_is_hostile() -> None:
    def change(data: bytearray) -> None:
        offset = inode_of(data, b"folder") - INODES - 2
        struct.pack_into("<H", data, find_entry(data, b"inner"), offset)

    with pytest.raises(HostileImage, match="parents"):
        read_all(forge(change))


def test_squashfs_the_root_in_itself_is_hostile() -> None:
    def change(data: bytearray) -> None:
        struct.pack_into("<H", data, find_entry(data, b"inner"), HEAD[11] & 0xFFFF)

    with pytest.raises(HostileImage, match="parents"):
        read_all(forge(change))


def test_squashfs_two_folders_with_one_listing_are_bounded() -> None:
    """Each directory may list the other's children, but no directory is entered twice."""

    def change(data: bytearray) -> None:
        first, second = inode_of(data, b"folder"), inode_of(data, b"inner")
        data[second + 16 : second + 28] = data[first + 16 : first + 28]

    with pytest.raises(HostileImage):
        read_all(forge(change))


def test_squashfs_entry_and_inode_of_different_type_are_corrupt() -> None:
    def change(data: bytearray) -> None:
        struct.pack_into("<H", data, find_entry(data, b"link") + 4, 2)

    with pytest.raises(CorruptImage, match="type"):
        read_all(forge(change))


@each_row(
    ("name", "offset", "form", "value", "error"),
    [
        (b"large", 28, "<I", 0xFFFFFFFF, CorruptImage),  # size, without a list of that length
        (b"large", 28, "<I", 9001, CorruptImage),  # one byte more than its last block has
        (b"large", 16, "<I", 0xFFFFFFF0, CorruptImage),  # first block outside of the file
        (b"large", 32, "<I", 0x00FFFFFF, CorruptImage),  # a block larger than blocks are
        (b"large", 32, "<I", 0x80000010, CorruptImage),  # undefined bits
        (b"attributes", 16 + 24 + 4, "<I", 7, CorruptImage),  # fragment that is not there
        (b"attributes", 16 + 24 + 8, "<I", 0xFFFFFF00, CorruptImage),  # offset in it
        (b"attributes", 16 + 24 + 12, "<I", 9, CorruptImage),  # set of attributes that is not there
        (b"attributes", 24, "<Q", 1 << 62, HostileImage),  # size of an extended inode
        (b"attributes", 4, "<H", 200, CorruptImage),  # owner that is not there
        (b"attributes", 0, "<H", 15, CorruptImage),  # type
        (b"link", 20, "<I", 0xFFFFFFFF, CorruptImage),  # length of the target
        (b"link", 20, "<I", 0xFFFF, CorruptImage),
        (b"folder", 24, "<H", 0xFFFF, HostileImage),  # size of the listing, which then holds the next directory's
        (b"folder", 26, "<H", 0xFFFF, CorruptImage),  # its offset
        (b"folder", 16, "<I", 0xFFFFFFFF, CorruptImage),  # its block
    ],
)
def test_squashfs_forged_inodes_are_refused(
    name: bytes, offset: int, form: str, value: int, error: type[KedgeError]
) -> None:
    def change(data: bytearray) -> None:
        struct.pack_into(form, data, inode_of(data, name) + offset, value)

    with pytest.raises(error):
        read_all(forge(change))


def test_squashfs_metadata_bombs_are_bounded() -> None:
    """A metadata block that expands beyond 8 KiB is refused, whatever its codec says."""
    from kedge.image.formats.compression.blocks import open_codec

    for codec in ("zstd", "gzip:1", "lz4"):
        image = bytearray(SMALL[codec])
        head = layout.SUPERBLOCK.unpack_from(image)
        bomb = bytes(open_codec(codec).compress_block(bytes(16 << 20)))[:8192]
        place = len(image)
        image += struct.pack("<H", min(len(bomb), 8192)) + bomb + bytes(100)
        struct.pack_into("<QQ", image, 64, place, len(image) - 50)
        struct.pack_into("<Q", image, 40, len(image))
        assert head[15] != place
        with pytest.raises(CorruptImage):
            read_all(bytes(image))


def test_squashfs_deep_folders_are_refused() -> None:
    file = io.BytesIO()
    with SquashWriter(file, SquashOptions(codec="lz4")) as writer:
        root = folder = Node(NodeKind.DIRECTORY)
        for _ in range(3000):
            folder = add_folder(folder, b"d")
        writer.finish(root)
    with pytest.raises(HostileImage, match="levels"), SquashReader(file) as reader:
        reader.read_tree()


def test_squashfs_other_things_are_no_images() -> None:
    for data in (b"", b"hsqs", b"hsqs" + bytes(92), b"sqsh" + PLAIN[4:], b"\x7fELF" * 1000, bytes(4096)):
        with pytest.raises((UnsupportedFormat, CorruptImage)):
            read_all(data)
    old = bytearray(PLAIN)
    struct.pack_into("<HH", old, 28, 3, 1)
    with pytest.raises(UnsupportedFormat, match=r"3\.1"):
        read_all(bytes(old))


def test_squashfs_an_offset_beyond_the_file_is_named() -> None:
    with pytest.raises(CorruptImage):
        SquashReader(io.BytesIO(PLAIN), offset=1 << 40)
    with pytest.raises(CorruptImage):
        SquashReader(io.BytesIO(PLAIN), size=len(PLAIN) + 1)
