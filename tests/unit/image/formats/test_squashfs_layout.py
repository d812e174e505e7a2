# SPDX-License-Identifier: BSD-3-Clause
"""What is in an image that kedge writes, field by field, as a parser tells it that shares nothing with kedge.

And the limits of the format, and what the parts of the writer do at the edges that whole images seldom meet.
"""

from __future__ import annotations

import io
import os
import re
import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest

from kedge.base.tree import ContentSink, Node, NodeKind
from kedge.errors import FileProblem, UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec, open_codec
from kedge.image.formats.squashfs import image_output, layout, writer
from kedge.image.formats.squashfs.content_writer import FileBlocks, pack_all_small
from kedge.image.formats.squashfs.image_output import OutputFile
from kedge.image.formats.squashfs.inode_writer import BlockMap, TreeTables
from kedge.image.formats.squashfs.table_writer import IdTable, MetadataWriter, XattrTable
from kedge.image.formats.squashfs.writer import SquashOptions
from tests.builders.rows import each_row
from tests.builders.squashfs_images import add_file, add_folder, add_special, write_image
from tests.builders.squashfs_text import write_text

XATTRS = ((b"security.capability", bytes(9)), (b"trusted.t", b""), (b"system.none", b"left out"))


def fill_every_kind(sink: ContentSink) -> Node:
    root = Node(NodeKind.DIRECTORY, 0o755, 1000, 100, 5)
    add_file(sink, root, b"block", b"a" * 4096, mode=0o640, owner=7, mtime=0xFFFFFFFE)
    add_file(sink, root, b"copy", b"a" * 4096)
    add_file(sink, root, b"more", b"b" * 4097)
    add_file(sink, root, b"parts-late", b"b" * 4096 + b"c")
    add_file(sink, root, b"empty", b"")
    add_file(sink, root, b"hole", b"h" * 4096 + bytes(4096) + b"hole")
    add_file(sink, root, b"holes-only", bytes(8195))
    add_file(sink, root, b"nearly", b"n" * 4095)
    linked = add_file(sink, root, b"small", b"hello\n", mode=0o4755)
    add_file(sink, root, b"twin", b"hello\n")
    folder = add_folder(root, b"folder", 0o1777)
    folder.children[b"other-name"] = linked
    folder.xattrs = ((b"user.note", b"on a folder"),)
    add_file(sink, folder, b"attributes", b"x").xattrs = XATTRS
    for number, xattrs in enumerate(((), XATTRS)):
        add_special(folder, b"link%d" % number, NodeKind.SYMLINK, mode=0o777, target=b"../empty", xattrs=xattrs)
        add_special(folder, b"null%d" % number, NodeKind.CHARACTER_DEVICE, rdev=os.makedev(1, 3), xattrs=xattrs)
        add_special(folder, b"disk%d" % number, NodeKind.BLOCK_DEVICE, rdev=os.makedev(0xABC, 0xDEF12), xattrs=xattrs)
        add_special(folder, b"pipe%d" % number, NodeKind.FIFO, mode=0o600, xattrs=xattrs)
        add_special(folder, b"socket%d" % number, NodeKind.SOCKET, xattrs=xattrs)
    add_folder(folder, b"nothing")
    return root


EVERY_KIND = """\
magic=0x73717368 inodes=0x18 mtime=0x60000000 block_size=0x1000 fragments=0x2 compressor=0x1 block_log=0xc \
flags=0x9cb ids=0x4 major=0x4 minor=0x0
owners 0 7 1000 100
fragment at 16486: 4095 stored, 0
fragment at 20581: 7 stored, 0
attributes: 2 sets, 0
  2:capability=[9*<00>], 1:t=
  0:note=on a folder
1 directory 0755 1000:100 5 links=3 parent=25 size=166
  11 in block 0 from 2: block 2 file, copy 3 file, empty 4 file, folder 5 directory, hole 6 file, holes-only 7 file, \
more 8 file, nearly 9 file, parts-late 10 file, small 11 file, twin 12 file
2 file 0640 7:7 4294967294 4096 at 96: 4096 stored no fragment, 0 = [4096*a]
3 file 0644 0:0 1 4096 at 96: 4096 stored no fragment, 0 = [4096*a]
4 file 0644 0:0 1 0 start=0 no fragment, 0 = \n\
5 extended directory 1777 0:0 1 xattr=1 links=3 parent=1 size=200
  13 in block 0 from 13: attributes 13 file, disk0 14 block, disk1 15 block, link0 16 symlink, link1 17 symlink, \
nothing 18 directory, null0 19 character, null1 20 character, other-name 11 file, pipe0 21 fifo, pipe1 22 fifo, \
socket0 23 socket, socket1 24 socket
6 extended file 0644 0:0 1 links=1 sparse=4096 xattr=none 8196 at 12386: 4096 stored, hole, 4 stored no fragment, 0 = \
[4096*h][4096*<00>]hole
7 extended file 0644 0:0 1 links=1 sparse=8194 xattr=none 8195 at 16486: hole, hole, hole no fragment, 0 = [8195*<00>]
8 file 0644 0:0 1 4097 at 4192: 4096 stored, 1 stored no fragment, 0 = [4097*b]
9 file 0644 0:0 1 4095 start=0 fragment 0 from 0 = [4095*n]
10 file 0644 0:0 1 4097 at 8289: 4096 stored, 1 stored no fragment, 0 = [4096*b]c
11 extended file 4755 0:0 1 links=2 sparse=0 xattr=none 6 start=0 fragment 1 from 0 = hello<0a>
12 file 0644 0:0 1 6 start=0 fragment 1 from 0 = hello<0a>
13 extended file 0644 0:0 1 links=1 sparse=0 xattr=0 1 start=0 fragment 1 from 6 = x
14 block 0755 0:0 1 links=1 0xdefabc12
15 extended block 0755 0:0 1 links=1 0xdefabc12 xattr=0
16 symlink 0777 0:0 1 links=1 ../empty
17 extended symlink 0777 0:0 1 links=1 ../empty xattr=0
18 directory 0755 0:0 1 links=2 parent=5 size=3
19 character 0755 0:0 1 links=1 0x103
20 extended character 0755 0:0 1 links=1 0x103 xattr=0
21 fifo 0600 0:0 1 links=1
22 extended fifo 0600 0:0 1 links=1 xattr=0
23 socket 0755 0:0 1 links=1
24 extended socket 0755 0:0 1 links=1 xattr=0
root 1, used 22201 of 24576"""


def test_image_of_every_kind_says_all_that_it_was_given() -> None:
    assert "\n".join(write_text(write_image(fill_every_kind, codec="none", block_size=4096, mtime=0x60000000))) == (
        EVERY_KIND
    )


def test_image_by_zlib_says_the_same_of_smaller_blocks() -> None:
    """All but the places and sizes of what is stored; these are zlib's own."""

    def drop_places(lines: list[str]) -> list[str]:
        inodes = [line for line in lines if line[0].isdecimal() or line.startswith("  ")]
        return [line.partition(" at ")[0] + line.rpartition(" no fragment")[2] for line in inodes]

    lines = write_text(write_image(fill_every_kind, codec="gzip", block_size=4096))
    assert lines[0].split()[4:8] == ["fragments=0x2", "compressor=0x1", "block_log=0xc", "flags=0x4c0"]
    assert lines[1] == "options 060000000f000000"
    assert drop_places(lines) == drop_places(EVERY_KIND.split("\n"))
    assert re.search(r" 4096 at 106: \d\d packed 0 no fragment, 0 = \[4096\*a\]$", lines[10])


def fill_long_listings(sink: ContentSink) -> Node:
    root = Node(NodeKind.DIRECTORY)
    linked, pipes, plain = (add_folder(root, name) for name in (b"linked", b"pipes", b"plain"))
    for number in range(600):
        add_file(sink, linked, b"%04d" % number + b"n" * 60, b"x")
    root.children[b"~"] = linked.children[b"%04d" % 300 + b"n" * 60]
    for number in range(300):
        add_special(pipes, b"%03d" % number, NodeKind.FIFO)
        add_file(sink, plain, b"%03d" % number, b"x")
    add_special(plain, b"100", NodeKind.SYMLINK, target=b"t" * 32)
    return root


def test_long_listings_are_cut_into_runs_and_have_an_index() -> None:
    """At 256 names, at 8 KiB, and where the inodes of the names are in another block; each block takes 8194 bytes."""
    lines = write_text(write_image(fill_long_listings, codec="none", block_size=4096))
    shown = [line for line in lines if " directory " in line[:22] or line.startswith("  ")]
    assert [line.replace("[60*n]", "…") for line in shown] == [
        "1 directory 0755 0:0 0 links=5 parent=1205 size=76",
        "  3 in block 32776 from 2: linked 2 directory, pipes 3 directory, plain 4 directory",
        "  1 in block 24582 from 5: ~ 5 file",
        "2 extended directory 0755 0:0 1 xattr=none links=2 parent=1 size=43311",
        "  index 8160 in block 8194: 0113…",
        "  index 16308 in block 16388: 0226…",
        "  index 24468 in block 24582: 0339…",
        "  index 32616 in block 32776: 0452…",
        "  index 40776 in block 40970: 0565…",
        "  24 in block 8194 from 6: 0000… 6 file … 0023… 29 file",
        "  89 in block 16388 from 30: 0024… 30 file … 0112… 118 file",
        "  113 in block 16388 from 119: 0113… 119 file … 0225… 231 file",
        "  54 in block 16388 from 232: 0226… 232 file … 0279… 285 file",
        "  59 in block 24582 from 286: 0280… 286 file … 0338… 343 file",
        "  113 in block 24582 from 344: 0339… 344 file … 0451… 456 file",
        "  83 in block 24582 from 457: 0452… 457 file … 0534… 539 file",
        "  30 in block 32776 from 540: 0535… 540 file … 0564… 569 file",
        "  35 in block 32776 from 570: 0565… 570 file … 0599… 604 file",
        "3 directory 0755 0:0 1 links=2 parent=1 size=3327",
        "  256 in block 8194 from 605: 000 605 fifo … 255 860 fifo",
        "  44 in block 8194 from 861: 256 861 fifo … 299 904 fifo",
        "4 directory 0755 0:0 1 links=2 parent=1 size=3327",
        "  256 in block 0 from 905: 000 905 file … 255 1160 file",
        "  44 in block 8194 from 1161: 256 1161 file … 299 1204 file",
    ]


def test_neighbours_whose_inodes_lie_apart_have_a_header_each() -> None:
    def fill(sink: ContentSink) -> Node:
        root = Node(NodeKind.DIRECTORY)
        many = add_folder(root, b"many")
        for number in range(600):
            add_file(sink, many, b"%04d" % number, b"x")
        root.children[b"a"] = many.children[b"0000"]
        add_file(sink, root, b"b", b"x")
        return root

    lines = write_text(write_image(fill, codec="none", block_size=4096))
    runs = lines[lines.index(next(line for line in lines if line.startswith("1 directory"))) + 1 :]
    assert [(run.split()[0], run.split(": ")[1].split()[0]) for run in runs[:2]] == [("1", "a"), ("2", "b")]


def pack_inode(node: Node, blocks: BlockMap) -> bytes:
    """The inode of a file that is alone in an image, as it is stored."""
    root = Node(NodeKind.DIRECTORY)
    root.children[b"file"] = node
    table = TreeTables(root, open_codec("none"), blocks).inodes.close()
    return b"".join(table[start + 2 : start + 8194] for start in range(0, len(table), 8194))


def test_files_far_into_an_image_or_large_have_extended_inodes() -> None:
    far, large = 0xFFFFFFFF, 0xFFFFFFFF
    wrong = []
    for start, size, kind in ((far, 5, 2), (far + 1, 5, 9), (96, large, 2), (96, large + 1, 9), (1 << 40, 1 << 40, 9)):
        node = Node(NodeKind.FILE)
        count = -(-size // (1 << 20))
        node.size, node.content = size, FileBlocks(1, count)
        data = pack_inode(node, BlockMap(array("Q", [0, start]), array("I", [1, *[7] * count, 9]), 1 << 20))
        record = struct.unpack_from("<IIII" if kind == 2 else "<QQQIIII", data, 16)
        none = 0xFFFFFFFF
        expected = (start, none, 0, size) if kind == 2 else (start, size, 0, 1, none, 0, none)
        end = 16 + (16 if kind == 2 else 40)
        if (data[0], record) != (kind, expected) or array("I", data[end : end + 4 * count]) != array("I", [7] * count):
            wrong.append((start, size, data[0], record))
    assert not wrong


@each_row("content", [FileBlocks(0, 1), FileBlocks(0, 3), None])
def test_files_without_all_of_their_blocks_are_refused(content: object) -> None:
    node = Node(NodeKind.FILE)
    node.size, node.content = 8192, content
    with pytest.raises(ValueError, match="8192 bytes has"):
        pack_inode(node, BlockMap(array("Q", [96] * 3), array("I", [9] * 3), 4096))


# -- parts of the writer


def test_options_of_a_writer_that_nobody_chose() -> None:
    assert SquashOptions() == SquashOptions(codec="zstd", block_size=131072, threads=1, mtime=0, verify=False)


def test_numbers_are_stored_lowest_byte_first_on_every_host(monkeypatch: pytest.MonkeyPatch) -> None:
    here = writer._little_endian(array("I", [1]))
    assert here == b"\1\0\0\0"
    other = {"little": "big", "big": "little"}[sys.byteorder]
    monkeypatch.setattr(writer, "sys", SimpleNamespace(byteorder=other))
    assert writer._little_endian(array("I", [1])) == here[::-1]


def test_columns_of_small_files_hold_nothing_else() -> None:
    node = Node(NodeKind.FILE)
    node.size, node.content = 5, 1 << 32
    assert len(pack_all_small([node], 1, IdTable().indices)) == 32
    node.xattrs = ((b"user.n", b""),)
    assert pack_all_small([node], 1, IdTable().indices) == b""


@each_row(("blocks", "calls"), [(15, 0), (16, 1)])
def test_blocks_of_a_table_are_compressed_together_where_there_are_many(blocks: int, calls: int) -> None:
    codec = open_codec("none")
    asked = []

    def compress_blocks(given: list[Any], threads: int) -> list[bytes]:
        asked.append((len(given), threads))
        return [bytes(block) for block in given]

    spied = SimpleNamespace(compress_block=codec.compress_block, compress_blocks=compress_blocks)
    table = MetadataWriter(cast(BlockCodec, spied), 3)
    table.add(bytes(8192 * blocks))
    table.settle()
    assert asked == [(blocks, 3)] * calls


# -- limits of the format


def test_owners_are_numbered_up_to_the_limit_of_the_format() -> None:
    table = IdTable()
    assert [table.indices[owner] for owner in (5, 0xFFFFFFFF, 5, 0)] == [0, 1, 0, 2]
    assert (len(table), table.pack()) == (3, struct.pack("<3I", 5, 0xFFFFFFFF, 0))
    for owner in (-1, 1 << 32):
        with pytest.raises(UnsupportedFormat):
            table.indices[owner]
    assert [table.indices[owner] for owner in range(6, 65538)][-1] == 65534
    with pytest.raises(UnsupportedFormat):
        table.indices[65538]
    assert table.indices[65537] == 65534


def test_attributes_are_taken_up_to_the_limits_of_linux() -> None:
    taken = ((b"user.n", b""), (b"user." + b"n" * 255, bytes(65536)))
    assert [XattrTable(open_codec("none")).index((each,)) for each in taken] == [0, 0]
    for refused in ((b"user.", b""), (b"user." + b"n" * 256, b""), (b"user.n", bytes(65537))):
        with pytest.raises(UnsupportedFormat):
            XattrTable(open_codec("none")).index((refused,))


def test_attributes_of_many_sets_are_found_by_their_numbers() -> None:
    table = XattrTable(open_codec("none"))
    sets = [((b"user.n", b"%d" % number), (b"odd", b"")) for number in range(600)]
    assert [table.index(each) for each in sets] == [*range(600)]
    assert [table.index(each) for each in sets[:3]] == [0, 1, 2]
    assert [table.index(((b"odd", b""),)), table.index(((b"user.n", b"7"),))] == [layout.INVALID_XATTR, 600]
    assert table.skipped == {b"odd": 604}


def test_targets_and_devices_are_taken_up_to_the_limits_of_linux() -> None:
    def try_node(kind: NodeKind, target: bytes = b"", rdev: int = 0) -> bytes:
        node = Node(kind)
        node.target, node.rdev = target, rdev
        return pack_inode(node, BlockMap(array("Q"), array("I"), 4096))

    assert try_node(NodeKind.SYMLINK, b"t" * 4095)[20:24] == (4095).to_bytes(4, "little")
    assert try_node(NodeKind.BLOCK_DEVICE, rdev=os.makedev(0xFFF, 0xFFFFF))[20:24] == b"\xff" * 4
    assert try_node(NodeKind.BLOCK_DEVICE, rdev=os.makedev(0x800, 0))[20:24] == (0x80000).to_bytes(4, "little")
    for refused in (
        {"target": b"t" * 4096, "kind": NodeKind.SYMLINK},
        {"rdev": os.makedev(0x1000, 0), "kind": NodeKind.BLOCK_DEVICE},
        {"rdev": os.makedev(0, 0x100000), "kind": NodeKind.CHARACTER_DEVICE},
    ):
        with pytest.raises(UnsupportedFormat):
            try_node(**refused)


# -- the file that is written to


@pytest.fixture(params=["descriptor", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BinaryIO]:
    file: BinaryIO = (tmp_path / "image").open("w+b") if request.param == "descriptor" else io.BytesIO()
    with file:
        file.write(b"#" * 4096)
        yield file


def test_output_is_written_and_read_where_it_is_said(output: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by calls that take or give a few bytes at a time, and of more pieces than one call takes."""
    write, write_all, read = os.pwrite, os.pwritev, os.pread
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: write(file, data[:3], place))
    monkeypatch.setattr(os, "pwritev", lambda file, data, place: write_all(file, [data[0], data[1][:1]], place))
    monkeypatch.setattr(os, "pread", lambda file, size, place: read(file, min(size, 3), place))
    image = OutputFile(output)
    image.write_at(5, b"0123456789")
    pieces = [b"<%d>" % number for number in range(1300)]
    whole = b"".join(pieces)
    assert image.write_all_at(20, pieces) == len(whole)
    assert image.write_all_at(20 + len(whole), []) == 0
    assert (image.read_at(5, 10), image.read_at(21, 100)) == (b"0123456789", whole[1:101])
    image.read_whole(8192, lambda file, base: file.seek(base + 1))
    assert output.tell() == 4096 + 8192
    output.seek(0)
    assert output.read() == b"#" * 4096 + bytes(5) + b"0123456789" + bytes(5) + whole


def test_output_that_became_shorter_is_a_problem_of_the_file(tmp_path: Path) -> None:
    with (tmp_path / "image").open("w+b") as file:
        image = OutputFile(file)
        image.write_at(0, b"0123456789")
        os.ftruncate(file.fileno(), 4)
        assert image.read_at(0, 4) == b"0123"
        with pytest.raises(FileProblem):
            image.read_at(0, 10)


def test_output_is_sent_in_stretches_of_16_megabytes(output: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(image_output, "begin_writing", lambda _, *stretch: sent.append(stretch))
    image, mega = OutputFile(output), 1 << 20
    for end in (1, 16 * mega - 1, 16 * mega, 17 * mega, 40 * mega, 56 * mega):
        image.send(end)
    expected = [(4096, 16 * mega), (4096 + 16 * mega, 24 * mega), (4096 + 40 * mega, 16 * mega)]
    assert sent == ([] if isinstance(output, io.BytesIO) else expected)


def test_output_stands_at_a_multiple_of_a_page_of_a_file_that_can_be_read(tmp_path: Path) -> None:
    def stand(file: Any, place: int) -> OutputFile:
        file.seek(place)
        return OutputFile(file)

    stand(io.BytesIO(), 12288)
    for place in (1, 2048, 4097):
        with pytest.raises(ValueError, match=str(place)):
            stand(io.BytesIO(), place)
    with (tmp_path / "image").open("wb") as file, pytest.raises(FileProblem):
        stand(file, 0)


def test_device_numbers_come_back() -> None:
    for major in (0, 1, 16, 195, 511, 0xFFF):
        for minor in (0, 1, 254, 255, 256, 4096, 0xFFFFF):
            assert layout.decode_device(layout.encode_device(0, major, minor)) == (major, minor)
