# SPDX-License-Identifier: BSD-3-Clause
"""SquashFS writer and reader: golden bytes, every kind of content, equality over threads. Needs nothing but Python."""

from __future__ import annotations

import errno
import hashlib
import io
import threading
import time
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
    add_file,
    add_folder,
    add_special,
    describe,
    fill_sample,
    mixed_bytes,
    read_image,
    write_image,
)
from tests.builders.squashfs_text import write_text
from tests.builders.waiting import wait_until

BLOCK = 131072


def superblock(data: bytes) -> tuple[int, ...]:
    return layout.SUPERBLOCK.unpack_from(data)


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


def test_writer_keeps_what_it_was_given() -> None:
    kept: list[Node] = []

    def fill(sink: ContentSink) -> Node:
        kept.append(fill_sample(sink))
        return kept[0]

    root, _ = read_image(write_image(fill))
    given = {path: describe(node) for path, node in walk(kept[0])}
    assert {path: describe(node) for path, node in walk(root)} == given
    assert describe(root) == describe(kept[0])


@each_row("block_size", [0, 2048, 5000, 1 << 21])
def test_writer_refuses_block_sizes_squashfs_has_not(block_size: int) -> None:
    with pytest.raises(InvalidSetting):
        SquashWriter(io.BytesIO(), SquashOptions(block_size=block_size))


def test_writer_refuses_codecs_that_only_read() -> None:
    with pytest.raises(UnsupportedFormat, match="xz"):
        SquashWriter(io.BytesIO(), SquashOptions(codec="xz"))


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


def test_writer_holes_take_no_room() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        node = add_special(root, b"hole", NodeKind.FILE)
        node.size = 1 << 28
        node.content = sink.add_stream(node.size, [bytes(1 << 20)] * (1 << 8))
        return root

    image = write_image(fill, codec="lz4")
    assert len(image) <= 8192 + 4 * (1 << 28) // BLOCK
    root, _ = _tree_only(image)
    assert root.children[b"hole"].size == 1 << 28


def _tree_only(image: bytes) -> tuple[Node, SquashReader]:
    reader = SquashReader(io.BytesIO(image))
    return reader.read_tree(), reader


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


@each_row(("given", "stored"), [(-1, 0), (-(1 << 40), 0), (1 << 32, 0xFFFFFFFF), (5, 5)])
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
        add_file(sink, root, b"m" * 255, b"the longest there is")
        add_file(sink, root, name, b"x")
        return root

    with pytest.raises(HostileImage) as caught:
        write_image(fill)
    assert repr(name[:80]) in str(caught.value)


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


@each_row("threads", [0, 1, 4])
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


@each_row(("threads", "batches", "blocks"), [(1, 2, 2), (2, 4, 2), (6, 10, 4)])
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


def test_reader_refuses_contents_of_another_image() -> None:
    with SquashReader(io.BytesIO(write_image())) as reader:
        node = Node(NodeKind.FILE)
        node.size, node.content = 5, 17
        with pytest.raises(TypeError):
            list(reader.chunks(node))
