# SPDX-License-Identifier: BSD-3-Clause
"""What is done for many files at once gives the bytes that doing it one by one gives."""

from __future__ import annotations

import io
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import UnsupportedFormat
from kedge.formats.compression import open_codec
from kedge.formats.squashfs import layout, small_files
from kedge.formats.squashfs.listing_writer import Children, ListingWriter
from kedge.formats.squashfs.table_writer import IdTable, MetadataWriter
from kedge.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.model.tree import FilesSink, Node, NodeKind

U32 = st.integers(0, 0xFFFFFFFF)


def small_file(mode: int, owner: tuple[int, int], mtime: int, place: tuple[int, int], size: int) -> Node:
    node = Node(NodeKind.FILE, mode, *owner, mtime)
    node.content = place[1] << small_files.OFFSET_SHIFT | place[0]
    node.size = size
    return node


FILES = st.builds(
    small_file,
    st.sampled_from([0o644, 0o755, 0o4755, 0o107777]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    U32,
    st.tuples(st.integers(0, 0xFFFFFFFE), st.integers(0, (1 << 20) - 1)),
    st.integers(1, (1 << 20) - 1),
)


@given(st.lists(FILES, min_size=1, max_size=40), st.integers(1, 1 << 30))
def test_inodes_of_small_files_are_those_packed_one_by_one(nodes: list[Node], number: int) -> None:
    expected, single = b"", IdTable()
    for place, node in enumerate(nodes, number):
        assert isinstance(node.content, int)
        fragment, offset = small_files.split_token(node.content)
        owner = single.indices[node.uid], single.indices[node.gid]
        words = (node.mode & 0o7777, *owner, node.mtime, place, 0, fragment, offset, node.size)
        expected += layout.BASIC_FILE.pack(2, *words)
    ids = IdTable()
    assert small_files.pack_small(nodes, number, ids.indices) == expected
    assert list(ids.indices) == list(single.indices)  # which gives the id table its order
    assert not small_files.find_others(nodes)


def test_other_nodes_are_found() -> None:
    nodes = [small_file(0o644, (0, 0), 5, (1, 2), 3) for _ in range(6)]
    nodes[1].content = None
    nodes[2].mtime = -1
    nodes[3].mtime = 1 << 32
    nodes[4].xattrs = ((b"user.a", b"b"),)
    assert small_files.find_others(nodes) == [1, 2, 3, 4]
    for other in nodes[1:5]:
        ids = IdTable()
        assert not small_files.pack_all_small([nodes[0], other, nodes[5]], 1, ids.indices)
        assert not len(ids)  # the owners of others before these have to come first
    assert small_files.pack_all_small(nodes[5:], 1, IdTable().indices)


@given(st.lists(st.integers(0, 700), max_size=6), st.integers(0, 9000))
def test_equal_records_get_the_addresses_of_single_ones(counts: list[int], before: int) -> None:
    together, single = MetadataWriter(open_codec("zstd")), MetadataWriter(open_codec("zstd"))
    for count in counts:
        records = [number.to_bytes(4, "little") * 8 for number in range(count)]
        place = together.add(b"".join(records))
        together.settle()
        places = range(place, place + 32 * count, 32)
        addresses = [single.append(record) for record in records]
        assert together.find_addresses(places).tolist() == addresses
        assert together.find_addresses(list(places)).tolist() == addresses
        together.add(b"x" * before)  # the next do not begin at a multiple of their size
        single.append(b"x" * before)
    assert together.close() == single.close()


def list_one_by_one(children: Children) -> tuple[bytes, list[int]]:
    """The rules of a listing, entry by entry; also where runs with an index entry begin."""
    runs: list[list[bytes]] = []
    index: list[int] = []
    heads: list[tuple[int, int]] = []
    size = indexed = 0
    rows = zip(children.names, children.addresses, children.numbers, children.kinds, strict=True)
    for name, address, number, kind in rows:
        is_near = bool(heads) and address >> 16 == heads[-1][0] and -32768 <= number - heads[-1][1] <= 32767
        has_room = size - indexed + 8 + len(name) <= layout.METADATA_SIZE
        if not is_near or not has_room or len(runs[-1]) == layout.DIRECTORY_RUN:
            if size + 20 + len(name) - indexed > layout.METADATA_SIZE:
                index.append(size)
                indexed = size
            heads.append((address >> 16, number))
            runs.append([])
            size += layout.DIRECTORY_HEADER.size
        delta = number - heads[-1][1]
        runs[-1].append(layout.DIRECTORY_ENTRY.pack(address & 0xFFFF, delta, kind, len(name) - 1) + name)
        size += 8 + len(name)
    packed = [
        layout.DIRECTORY_HEADER.pack(len(run) - 1, *head) + b"".join(run) for head, run in zip(heads, runs, strict=True)
    ]
    return b"".join(packed), index


@settings(max_examples=60)
@given(
    st.integers(1, 1500),
    st.lists(st.integers(7, 250), min_size=1, max_size=5),
    st.sampled_from([32, 56, 900]),
    st.integers(1, 1 << 20),
    st.lists(st.tuples(st.integers(0, 1499), st.integers(1, 1 << 20)), max_size=8),
)
def test_listings_are_those_made_entry_by_entry(
    count: int, lengths: list[int], step: int, first: int, linked: list[tuple[int, int]]
) -> None:
    names = [b"%06d" % number + b"n" * (lengths[number % len(lengths)] - 6) for number in range(count)]
    places = [5000 + number * step for number in range(count)]
    addresses = [(place // 8192 * 3000) << 16 | place % 8192 for place in places]
    numbers: list[int] | range = range(first, first + count)
    if linked:  # files with several names have numbers and addresses of elsewhere
        numbers = list(numbers)
        for place, number in linked:
            numbers[place % count] = number
            addresses[place % count] = number << 16 | 7
    children = Children(names, array("Q", addresses), numbers, b"\2" * count)
    expected, index = list_one_by_one(children)
    table = MetadataWriter(open_codec("none"))
    writer = ListingWriter()
    writer.add(children)
    try:
        listing = writer.store(table, 0)
    except UnsupportedFormat:
        assert len(index) > layout.MAXIMUM_INDEX
        return
    stored = table.close()
    starts = [start for start, _ in pairwise(table.starts)]
    assert b"".join(stored[start + 2 : end] for start, end in zip(starts, table.starts[1:], strict=True)) == expected
    assert (listing.size, [offset for offset, _ in listing.index]) == (len(expected), index)


@pytest.mark.parametrize("block_size", [4096, 131072])
def test_contents_taken_together_are_those_taken_one_by_one(block_size: int) -> None:
    contents = [bytes([number % 7]) * (number * 131 % 5000) for number in range(200)]  # empty, equal, and large ones
    contents += [b"%d" % number * 40 for number in range(400)]
    piece = b"".join(contents)
    sizes = [len(content) for content in contents]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    images = []
    for together in (True, False):
        file = io.BytesIO()
        with SquashWriter(file, SquashOptions(block_size=block_size)) as writer:
            assert isinstance(writer, FilesSink)
            root = Node(NodeKind.DIRECTORY)
            tokens = (
                writer.add_all(memoryview(piece), starts, sizes)
                if together
                else [writer.add(content) if content else None for content in contents]
            )
            for place, (token, size) in enumerate(zip(tokens, sizes, strict=True)):
                root.children[b"%d" % place] = node = Node(NodeKind.FILE)
                node.content, node.size = token, size
            writer.finish(root)
        images.append(file.getvalue())
    assert images[0] == images[1]
