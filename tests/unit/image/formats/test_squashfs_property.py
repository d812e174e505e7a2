# SPDX-License-Identifier: BSD-3-Clause
"""Any tree goes through an image unchanged. Needs nothing but Python."""

from __future__ import annotations

import io
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.base.tree import Node, NodeKind, walk
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.squashfs_images import describe

BLOCK = 4096
NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: name not in (b".", b"..") and not {0, 47} & set(name))


def repeat(pattern: bytes, size: int) -> bytes:
    return (pattern * size)[:size]


def join_blocks(values: list[int], tail: bytes) -> bytes:
    return b"".join(bytes([value]) * BLOCK for value in values) + tail


IDS = st.integers(0, 0xFFFFFFFF)
CONTENTS = st.one_of(
    st.binary(max_size=100),
    st.builds(repeat, st.binary(min_size=1, max_size=9), st.integers(0, 5 * BLOCK)),
    st.builds(join_blocks, st.lists(st.sampled_from([0, 0, 1, 255]), max_size=5), st.binary(max_size=30)),
)
XATTRS = st.dictionaries(
    st.builds(
        bytes.__add__, st.sampled_from([b"user.", b"trusted.", b"security."]), st.binary(min_size=1, max_size=20)
    ),
    st.binary(max_size=300),
    max_size=3,
).map(lambda found: tuple(sorted(found.items())))
METADATA = st.tuples(st.integers(0, 0o7777), IDS, IDS, IDS, XATTRS)
LEAVES = st.one_of(
    st.tuples(st.just(NodeKind.FILE), METADATA, CONTENTS),
    st.tuples(st.just(NodeKind.SYMLINK), METADATA, st.binary(min_size=1, max_size=4095)),
    st.tuples(
        st.sampled_from([NodeKind.BLOCK_DEVICE, NodeKind.CHARACTER_DEVICE]),
        METADATA,
        st.builds(os.makedev, st.integers(0, 0xFFF), st.integers(0, 0xFFFFF)),
    ),
    st.tuples(st.sampled_from([NodeKind.FIFO, NodeKind.SOCKET]), METADATA, st.none()),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.just(NodeKind.DIRECTORY), METADATA, st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=25,
)
ROOTS = st.tuples(st.just(NodeKind.DIRECTORY), METADATA, st.dictionaries(NAMES, TREES, max_size=8))


def grow(writer: SquashWriter, plan: Any, contents: dict[Node, bytes]) -> Node:
    kind, (mode, uid, gid, mtime, xattrs), value = plan
    node = Node(kind, mode, uid, gid, mtime)
    node.xattrs = xattrs
    if kind is NodeKind.DIRECTORY:
        for name, child in value.items():
            node.children[name] = grow(writer, child, contents)
    elif kind is NodeKind.FILE:
        node.size = len(value)
        node.content = writer.add_stream(len(value), [value[:5000], value[5000:]])
        contents[node] = value
    elif kind is NodeKind.SYMLINK:
        node.target = value
    else:
        node.rdev = value or 0
    return node


@given(ROOTS, st.sampled_from(["zstd", "gzip:1", "lz4", "none"]), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None, database=None)
def test_squashfs_any_tree_survives(plan: Any, codec: str, threads: int, chance: Any) -> None:
    file, contents = io.BytesIO(), dict[Node, bytes]()
    with SquashWriter(file, SquashOptions(codec=codec, block_size=BLOCK, threads=threads)) as writer:
        root = grow(writer, plan, contents)
        links = add_links(root, chance)
        writer.finish(root)
    with SquashReader(file, threads=threads) as reader:
        found = reader.read_tree()
        given_paths, found_paths = dict(walk(root)), dict(walk(found))
        assert list(given_paths) == list(found_paths)
        assert describe(found) == describe(root)
        for path, node in given_paths.items():
            assert describe(found_paths[path]) == describe(node)
            if node.kind is NodeKind.FILE:
                assert b"".join(reader.chunks(found_paths[path])) == contents[node]
        assert all(found_paths[first] is found_paths[second] for first, second in links)


def add_links(root: Node, chance: Any) -> list[tuple[bytes, bytes]]:
    """Give some nodes a second name."""
    nodes = [(path, node) for path, node in walk(root) if node.kind is not NodeKind.DIRECTORY]
    folders = [(b"", root)] + [(path + b"/", node) for path, node in walk(root) if node.kind is NodeKind.DIRECTORY]
    links = []
    for number, (path, node) in enumerate(nodes[:5]):
        prefix, folder = chance.choice(folders)
        name = b"second name %d" % number
        folder.children[name] = node
        links.append((path, prefix + name))
    return links
