# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS writer and reader: golden bytes, every kind of content, equality over threads. Needs nothing but Python."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.errors import FileProblem, HostileImage, InvalidSetting, UnsupportedFormat
from kedge.image.formats.compression.blocks import open_codec
from kedge.image.formats.squashfs import compress_pipeline, image_output, layout
from kedge.image.formats.squashfs.compress_pipeline import BlockPipeline
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.rows import each_row
from tests.builders.squashfs_images import (
    CAPABILITY,
    add_file,
    add_folder,
    add_special,
    describe,
    fill_sample,
    forge_checksum,
    mixed_bytes,
    read_image,
    write_image,
)
from tests.builders.squashfs_text import write_text
from tests.builders.waiting import wait_until
from tests.programs import read_program

BLOCK = 131072
WRITABLE = ["zstd", "zstd:1", "gzip:1", "lz4", "none"]


def superblock(data: bytes) -> tuple[int, ...]:
    return layout.SUPERBLOCK.unpack_from(data)


def fill_tiny(sink: ContentSink) -> Node:
    root = Node(NodeKind.DIRECTORY, 0o755, 1000, 100, 0x5F000000)
    add_file(sink, root, b"a", b"hello\n", mode=0o640, mtime=0x5F000001)
    add_special(root, b"b", NodeKind.SYMLINK, mode=0o777, target=b"a")
    return root


def test_writer_golden_bytes_of_a_tiny_image() -> None:
    data = write_image(fill_tiny, codec="none", mtime=0x60000000)
    assert len(data) == 4096
    inode = 102  # after the superblock and the one fragment block
    inodes = bytes.fromhex(
        "5980"  # 89 bytes, stored
        "0200a00100000000" "0100005f02000000" "00000000" "00000000" "00000000" "06000000"  # file a
        "0300ff0100000000" "0100000003000000" "01000000" "01000000" "61"  # link b, its target
        "0100ed0101000200" "0000005f01000000" "00000000" "02000000" "2100" "0000" "04000000"  # root: 30 + 3 bytes
    )  # fmt: skip
    assert data[96:inode] == b"hello\n"
    assert data[inode : inode + len(inodes)] == inodes
    listing = bytes.fromhex("010000000000000002000000") + bytes.fromhex("0000000002000000") + b"a"
    listing += bytes.fromhex("2000010003000000") + b"b"
    directory = inode + len(inodes)
    assert data[directory : directory + 2 + len(listing)] == (len(listing) | 0x8000).to_bytes(2, "little") + listing
    head = superblock(data)
    assert head[0] == 0x73717368
    assert head[1:4] == (3, 0x60000000, BLOCK)  # inodes, time, block size
    assert head[4:7] == (1, 1, 17)  # fragments, gzip (nothing is compressed), log
    assert head[7] == layout.FLAGS_ALL_STORED | layout.FLAG_EXPORT | layout.FLAG_DUPLICATES
    assert head[8:11] == (3, 4, 0)  # ids 0, 1000, 100; version
    assert head[11] == 32 + 25  # root after two inodes in the first metadata block
    assert head[14] == layout.INVALID_TABLE
    assert head[15:17] == (inode, directory)
    ids = data[head[13] - 12 : head[13]]
    assert ids == (0).to_bytes(4, "little") + (1000).to_bytes(4, "little") + (100).to_bytes(4, "little")
    assert data[head[12] :] == bytes(4096 - head[12])


def test_writer_bytes_stay_the_same_from_one_version_to_the_next() -> None:
    """Else an image that is made again is another one, although nothing in it is: digests and signatures say so."""

    def fill(sink: ContentSink) -> Node:
        root = fill_sample(sink)
        folder = add_folder(root, b"many")
        for number in range(2000):  # more than one metadata block of inodes and of names
            node = add_file(sink, folder, b"a rather long name %d" % number, b"%d" % (number % 7), owner=number % 5)
            node.xattrs = ((b"user.number", b"%d" % (number % 3)),) if number % 100 == 0 else ()
        return root

    images = [write_image(fill, codec="none", block_size=size, mtime=5) for size in (4096, BLOCK)]
    assert [hashlib.sha256(image).hexdigest()[:16] for image in images] == ["728a7a27f3d9d90b", "6249921046a7bfa4"]


@each_row("codec", WRITABLE)
def test_writer_image_reads_back(codec: str) -> None:
    expected = read_image(write_image(codec="none"))[1]
    root, found = read_image(write_image(codec=codec, threads=2), threads=2)
    assert found == expected
    copies = root.children[b"copies"]
    assert copies.children[b"link-1"] is copies.children[b"deep"].children[b"link-2"]
    ping = copies.children[b"ping"]
    assert ping.xattrs == ((b"security.capability", CAPABILITY), (b"user.note", b"\x00\xffbinary"))
    assert root.children[b"kinds"].children[b"null"].rdev == os.makedev(1, 3)


def test_writer_keeps_what_it_was_given() -> None:
    kept: list[Node] = []

    def fill(sink: ContentSink) -> Node:
        kept.append(fill_sample(sink))
        return kept[0]

    root, _ = read_image(write_image(fill))
    given = {path: describe(node) for path, node in walk(kept[0])}
    assert {path: describe(node) for path, node in walk(root)} == given
    assert describe(root) == describe(kept[0])


@pytest.mark.parametrize("codec", ["zstd", "gzip:1", "lz4", "none"])
def test_writer_bytes_do_not_depend_on_threads(codec: str) -> None:
    def fill(sink: ContentSink) -> Node:
        root = fill_sample(sink)
        for number in range(40):
            add_file(sink, root, b"f%d" % number, mixed_bytes(number, 30_000 + 17_000 * number))
        return root

    images = [write_image(fill, codec=codec, threads=threads) for threads in (0, 1, 2, 4, 12)]
    assert all(image == images[0] for image in images)


@pytest.mark.parametrize("block_size", [4096, 65536, 1 << 20])
def test_writer_block_sizes(block_size: int) -> None:
    expected = read_image(write_image(codec="none"))[1]
    assert read_image(write_image(block_size=block_size, threads=2))[1] == expected


@pytest.mark.parametrize("block_size", [0, 2048, 5000, 1 << 21])
def test_writer_refuses_block_sizes_squashfs_has_not(block_size: int) -> None:
    with pytest.raises(InvalidSetting):
        SquashWriter(io.BytesIO(), SquashOptions(block_size=block_size))


def test_writer_refuses_codecs_that_only_read() -> None:
    with pytest.raises(UnsupportedFormat, match="xz"):
        SquashWriter(io.BytesIO(), SquashOptions(codec="xz"))


def test_writer_stands_anywhere_in_a_file(tmp_path: Path) -> None:
    alone = write_image(threads=2)
    with (tmp_path / "image").open("w+b") as file:
        file.write(b"#" * 8192)
        with SquashWriter(file, SquashOptions(threads=2)) as writer:
            size = writer.finish(fill_sample(writer))
        assert file.tell() == 8192 + size
        file.seek(0)
        data = file.read()
        assert data == b"#" * 8192 + alone
        with SquashReader(file, offset=8192, size=size) as reader:
            assert reader.find("kinds/symlink") is not None


def test_writer_sends_blocks_to_the_disk_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(image_output, "begin_writing", lambda _, offset, size: sent.append((offset, size)))
    with (tmp_path / "image").open("w+b") as file:
        file.seek(4096)
        with SquashWriter(file, SquashOptions(codec="none", threads=2)) as writer:
            root = Node(NodeKind.DIRECTORY)
            for number in range(40):
                root.children[b"%d" % number] = node = Node(NodeKind.FILE)
                node.size = 1 << 20
                node.content = writer.add(number.to_bytes(4, "little") * (1 << 18))
            writer.finish(root)
    assert [offset for offset, _ in sent] == [4096, 4096 + sent[0][1]]  # one stretch behind the other
    assert all(16 << 20 <= size < 20 << 20 for _, size in sent)


def test_writer_stores_equal_files_once() -> None:
    def fill(sink: ContentSink, copies: int) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(copies):
            folder = add_folder(root, b"%d" % number)
            for size in (10, 5000, 131071, BLOCK, 700_000):
                add_file(sink, folder, b"%d" % size, mixed_bytes(size, size))
        return root

    once = len(write_image(lambda sink: fill(sink, 1)))
    assert len(write_image(lambda sink: fill(sink, 20), threads=2)) <= once + 8192


def test_writer_compares_bytes_not_checksums() -> None:
    # Two pairs of equal size and CRC-32 with different bytes: a CRC is linear, so patching four bytes steers it.
    first = mixed_bytes(1, 1000)
    second = forge_checksum(mixed_bytes(2, 996), first)
    large = mixed_bytes(3, BLOCK) + b"tail one"
    other = forge_checksum(mixed_bytes(4, BLOCK - 4), large[:BLOCK]) + b"tail two"
    assert len({first, second}) == 2

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number, data in enumerate((first, second, large, other, first, second, large, other)):
            add_file(sink, root, b"%d" % number, data)
        return root

    image = write_image(fill)
    with SquashReader(io.BytesIO(image)) as reader:
        root = reader.read_tree()
        contents = [b"".join(reader.chunks(node)) for _, node in sorted(root.children.items())]
    assert contents == [first, second, large, other] * 2


def test_writer_large_files_that_part_late_keep_their_own_end() -> None:
    begin = mixed_bytes(5, 3 * BLOCK) + bytes(2 * BLOCK) + mixed_bytes(6, BLOCK)

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(3):
            add_file(sink, root, b"%d" % number, begin + b"%d" % number * 1000)
        return root

    for threads in (0, 2):
        image = write_image(fill, threads=threads)
        with SquashReader(io.BytesIO(image)) as reader:
            for name, node in reader.read_tree().children.items():
                assert b"".join(reader.chunks(node)) == begin + name * 1000


@each_row("threads", [0, 2, 16])
@each_row("kind", [bytes, bytearray])
def test_writer_copies_only_what_may_change(kind: type, threads: int) -> None:
    """Whole blocks of bytes stay where they are until they are compressed; a buffer is used again by its owner."""
    whole = mixed_bytes(7, 9 * BLOCK + 77)

    def give(chunk: int) -> Iterator[memoryview]:
        buffer = bytearray(chunk)
        for start in range(0, len(whole), chunk):
            part = whole[start : start + chunk]
            buffer[: len(part)] = part
            yield memoryview(bytes(part) if kind is bytes else buffer)[: len(part)]

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number, chunk in enumerate((4 * BLOCK, 3 * BLOCK + 5, BLOCK, 1000)):
            node = add_special(root, b"%d" % number, NodeKind.FILE)
            node.size = len(whole) - number  # another size: else it is the same file once more
            node.content = sink.add_stream(node.size, _cut_short(give(chunk), node.size))
        return root

    with SquashReader(io.BytesIO(write_image(fill, threads=threads))) as reader:
        for name, node in reader.read_tree().children.items():
            assert b"".join(reader.chunks(node)) == whole[: len(whole) - int(name)]


def _cut_short(chunks: Iterator[memoryview], size: int) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk[:size]
        size -= min(len(chunk), size)


def test_writer_goes_on_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_image(threads=2)

    def write_less(descriptor: int, pieces: list[Any], offset: int) -> int:
        data = b"".join(pieces)
        return os.pwrite(descriptor, data[: len(data) // 2], offset)

    monkeypatch.setattr(image_output.os, "pwritev", write_less)
    with (tmp_path / "image").open("w+b") as file, SquashWriter(file, SquashOptions(threads=2)) as writer:
        writer.finish(fill_sample(writer))
    assert (tmp_path / "image").read_bytes() == whole


def test_writer_holes_take_no_room() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        node = add_special(root, b"hole", NodeKind.FILE)
        node.size = 3 << 30
        zeros = bytes(1 << 20)
        node.content = sink.add_stream(node.size, (zeros for _ in range(3 << 10)))
        return root

    image = write_image(fill, codec="lz4")
    assert len(image) <= 8192 + 4 * (3 << 30) // BLOCK
    root, _ = _tree_only(image)
    assert root.children[b"hole"].size == 3 << 30


def _tree_only(image: bytes) -> tuple[Node, SquashReader]:
    reader = SquashReader(io.BytesIO(image))
    return reader.read_tree(), reader


def test_writer_ten_gigabytes_in_one_file() -> None:
    size = (10 << 30) + 5
    pattern = mixed_bytes(7, 1 << 20)

    def pieces() -> Iterator[bytes]:
        yield pattern
        for _ in range(10 << 10):
            yield bytes(1 << 20)

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        node = add_special(root, b"large", NodeKind.FILE)
        node.size = size
        chunks = pieces()
        node.content = sink.add_stream(size, _limit(chunks, size))
        return root

    root, reader = _tree_only(write_image(fill, threads=2))
    node = root.children[b"large"]
    assert node.size == size
    chunks = reader.chunks(node)
    assert b"".join(next(chunks) for _ in range(8)) == pattern
    chunks.close()  # type: ignore[attr-defined]


def _limit(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:size]
        size -= min(len(chunk), size)
        if not size:
            return


def test_writer_directory_of_seventy_thousand() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        folder = add_folder(root, b"many")
        for number in range(70_000):
            add_file(sink, folder, b"entry-%d" % number, b"%d" % (number % 1000))
        return root

    image = write_image(fill)
    root, reader = _tree_only(image)
    names = root.children[b"many"].children
    assert len(names) == 70_000
    assert list(names) == sorted(names)
    found = reader.find(b"many/entry-69999")
    assert found is not None
    assert b"".join(reader.chunks(found)) == b"999"


def test_writer_refuses_a_directory_beyond_any_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAXIMUM_INDEX", 3)  # the real limit takes two million names

    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(200):
            add_file(sink, root, b"%0200d" % number, b"")
        return root

    with pytest.raises(UnsupportedFormat, match="more than SquashFS can index"):
        write_image(fill)


def test_writer_fills_an_index_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(200):
            add_file(sink, root, b"%0200d" % number, b"x")
        return root

    entries = sum(line.startswith("  index ") for line in write_text(write_image(fill, codec="none")))
    monkeypatch.setattr(layout, "MAXIMUM_INDEX", entries)
    write_image(fill)
    monkeypatch.setattr(layout, "MAXIMUM_INDEX", entries - 1)
    with pytest.raises(UnsupportedFormat, match="more than SquashFS can index"):
        write_image(fill)


def test_writer_many_owners() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        for number in range(65_534):
            add_special(root, b"%d" % number, NodeKind.FIFO).uid = 0xFFFFFFFF - number
        return root

    root, _ = _tree_only(write_image(fill))
    assert {node.uid for node in root.children.values()} == {0xFFFFFFFF - number for number in range(65_534)}


@pytest.mark.parametrize(("given", "stored"), [(-1, 0), (-(1 << 40), 0), (1 << 32, 0xFFFFFFFF), (5, 5)])
def test_writer_clamps_times(given: int, stored: int) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY, mtime=given)
        add_file(sink, root, b"a", b"1", mtime=given)
        return root

    root, _ = _tree_only(write_image(fill, mtime=given))
    assert (root.mtime, root.children[b"a"].mtime) == (stored, stored)


def test_writer_counts_attributes_it_cannot_store() -> None:
    file = io.BytesIO()
    with SquashWriter(file, SquashOptions()) as writer:
        root = Node(NodeKind.DIRECTORY)
        for name in (b"a", b"b"):
            add_file(writer, root, name, name).xattrs = ((b"system.posix_acl_access", b"x"), (b"user.kept", b"1"))
        add_file(writer, root, b"c", b"c").xattrs = ((b"odd", b"x"),)
        writer.finish(root)
    assert writer.skipped_xattrs == {b"system.posix_acl_access": 2, b"odd": 1}
    root, _ = _tree_only(file.getvalue())
    assert root.children[b"a"].xattrs == ((b"user.kept", b"1"),)
    assert root.children[b"c"].xattrs == ()


@each_row("name", [b"", b".", b"..", b"a/b", b"a\0b", b"n" * 256])
def test_writer_refuses_names_files_cannot_have(name: bytes) -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        add_file(sink, root, name, b"x")
        return root

    with pytest.raises(HostileImage):
        write_image(fill)


def test_writer_refuses_a_folder_in_two_places() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        root.children[b"b"] = add_folder(root, b"a")
        return root

    with pytest.raises(HostileImage, match="twice"):
        write_image(fill)


@each_row("found", [[b"x" * 10], [b"x" * BLOCK], [b"x" * 200_000, b"y"], []])
@each_row("size", [11, 200_000])
def test_writer_refuses_contents_of_another_size(size: int, found: list[bytes]) -> None:
    with SquashWriter(io.BytesIO(), SquashOptions()) as writer, pytest.raises(FileProblem, match=str(size)):
        writer.add_stream(size, found)


def test_writer_asks_for_no_more_of_a_file_that_is_too_long() -> None:
    chunks = iter([b"x" * 11] * 50)
    with SquashWriter(io.BytesIO(), SquashOptions()) as writer, pytest.raises(FileProblem, match="10"):
        writer.add_stream(10, chunks)
    assert len(list(chunks)) == 49


def test_writer_hard_link_to_the_very_first_inode() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        root.children[b"b"] = add_file(sink, root, b"a", b"same")
        return root

    image = write_image(fill)
    assert superblock(image)[1] == 2
    root, _ = _tree_only(image)
    assert root.children[b"a"] is root.children[b"b"]


class FullDisk(io.BytesIO):
    """Has room for so many bytes."""

    room = 3 << 20

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_writer_full_disk_reaches_the_caller_and_ends_the_threads(threads: int) -> None:
    before = threading.active_count()
    writer = SquashWriter(FullDisk(), SquashOptions(codec="none", threads=threads))
    with pytest.raises(OSError, match="No space") as caught:  # noqa: PT012 - any of these calls may be the one
        for number in range(1000):
            writer.add(mixed_bytes(number, 100_000))
        writer.finish(Node(NodeKind.DIRECTORY))
    assert caught.value.errno == errno.ENOSPC
    assert threading.active_count() == before


def test_writer_fails_where_the_last_blocks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def compress(batch: compress_pipeline.Batch, codec: object) -> None:
        raise MemoryError("of the last blocks")

    monkeypatch.setattr(compress_pipeline.Batch, "compress", compress)
    with SquashWriter(io.BytesIO(), SquashOptions()) as writer:
        root = Node(NodeKind.DIRECTORY)
        add_file(writer, root, b"a", b"text")
        with pytest.raises(MemoryError, match="of the last blocks"):
            writer.finish(root)


def test_writer_full_device_reaches_the_caller() -> None:
    with Path("/dev/full").open("r+b", buffering=0) as file, SquashWriter(file, SquashOptions(threads=2)) as writer:
        root = Node(NodeKind.DIRECTORY)
        add_file(writer, root, b"a", mixed_bytes(1, 3 << 20))
        with pytest.raises(OSError, match="No space"):
            writer.finish(root)


def test_writer_takes_nothing_after_its_end() -> None:
    with SquashWriter(io.BytesIO(), SquashOptions(threads=2)) as writer:
        writer.finish(Node(NodeKind.DIRECTORY))
        with pytest.raises(ValueError, match="already"):
            writer.add_stream(10 << 20, [mixed_bytes(1, 10 << 20)])


def test_writer_abort_ends_the_threads_while_they_work() -> None:
    before = threading.active_count()
    with SquashWriter(io.BytesIO(), SquashOptions(codec="zstd:19", threads=3)) as writer:
        for number in range(80):
            writer.add(mixed_bytes(number, 120_000))
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_writer_works_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write_image(threads=0)
    refused = []

    def refuse(self: threading.Thread) -> None:
        refused.append(self.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert write_image(threads=4) == expected
    with SquashWriter(io.BytesIO(), SquashOptions(threads=4)) as writer:
        refused.clear()
        for number in range(3):
            writer.add(mixed_bytes(number, 3 << 20))
    assert refused == ["kedge-compress"]  # and not once more for each batch
    assert read_image(expected, threads=4)[1]


def test_writer_hands_on_what_a_signal_raises_while_a_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(thread: threading.Thread) -> bool:
        thread.start()
        raise KeyboardInterrupt

    monkeypatch.setattr(compress_pipeline, "start_thread", interrupt)
    before = threading.active_count()
    with SquashWriter(io.BytesIO(), SquashOptions(threads=2)) as writer, pytest.raises(KeyboardInterrupt):
        writer.add(mixed_bytes(1, 3 << 20))
    wait_until("the thread ends, which `stop` does not know", lambda: threading.active_count() == before)


class HeldOutput:
    """The output of a disk that takes nothing until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def write_all_at(self, _: int, pieces: list[Any]) -> int:
        self.released.wait()
        return sum(map(len, pieces))

    def send(self, _: int) -> None:
        pass


@pytest.mark.parametrize(("threads", "batches", "blocks"), [(1, 2, 2), (2, 4, 2), (6, 10, 4)])
def test_writer_holds_no_more_than_a_few_batches(threads: int, batches: int, blocks: int) -> None:
    """As many as threads, up to four waiting, and the one that is filled; of 2 MB, from six threads on of 4 MB."""
    output, block = HeldOutput(), memoryview(bytes(range(256)) * 4096)
    pipeline = BlockPipeline(output, open_codec("none"), len(block), threads, start=0)  # type: ignore[arg-type]

    def fill() -> None:
        for _ in range(100):
            pipeline.add_block(block)

    filling = threading.Thread(target=fill)
    filling.start()
    held = (batches + 1) * blocks
    try:
        wait_until("as much is taken as is held", lambda: pipeline.next_number >= held)
        time.sleep(0.2)
        taken = pipeline.next_number
    finally:
        output.released.set()
        filling.join()
    pipeline.finish()
    assert (taken, len(pipeline.sizes), pipeline.end) == (held, 100, 100 << 20)


MEASURE = read_program("measure_squashfs_writer")


def test_writer_memory_is_bounded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "image"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 80 << 10  # kilobytes; 400 MB of noise went through
    assert (tmp_path / "image").stat().st_size > 400 << 20


def test_reader_finds_without_reading_the_tree() -> None:
    image = write_image()
    with SquashReader(io.BytesIO(image)) as reader:
        node = reader.find(b"copies/deep/link-2")
        assert node is not None
        assert b"".join(reader.chunks(node)) == b"linked\n"
        assert reader.find("/sizes//131073") is not None
        assert reader.find("nothing/here") is None
        assert reader.find("kinds/symlink/below") is None
        folder = reader.find("sizes")
        assert folder is not None
        assert len(folder.children) == 8
        root = reader.find("/")
        assert root is not None
        assert sorted(root.children) == [b"copies", b"holes", b"kinds", b"sizes"]


def test_reader_tail_fragments_and_threads_agree() -> None:
    image = write_image(block_size=4096)
    assert read_image(image, threads=1)[1] == read_image(image, threads=3)[1]


def test_reader_refuses_contents_of_another_image() -> None:
    with SquashReader(io.BytesIO(write_image())) as reader:
        node = Node(NodeKind.FILE)
        node.size, node.content = 5, 17
        with pytest.raises(TypeError):
            list(reader.chunks(node))
