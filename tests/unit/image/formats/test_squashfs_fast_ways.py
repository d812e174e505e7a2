# SPDX-License-Identifier: BSD-3-Clause
"""An image has the bytes that the plain way gives, by whatever way its contents came and however many worked at it.

And it is read as one file after the other is, by whatever way. Trees are generated; each failure is named by its seed.
"""

from __future__ import annotations

import functools
import io
import random
from array import array
from collections.abc import Callable, Iterator

import pytest

from kedge.base.packed_blocks import PackedBlocks
from kedge.base.tree import Buffer, Node, NodeKind, walk
from kedge.image.formats.compression.blocks import checksum
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from tests.builders.edge_trees import Plan, plan_tree
from tests.builders.plain_squashfs import PlainImage
from tests.builders.squashfs_images import describe

THREADS = (0, 1, 3, 8)
Way = Callable[[SquashWriter, Plan, random.Random], None]


def give_each(writer: SquashWriter, plan: Plan, chance: random.Random) -> None:
    """Whole files, one after the other, in bytes or in memory that is used again."""
    room = bytearray(max((len(data) for _, data in plan.files), default=0))
    for node, data in plan.files:
        room[: len(data)] = data
        given: Buffer = chance.choice((data, memoryview(room)[: len(data)]))
        node.content = writer.add(given)


def give_streams(writer: SquashWriter, plan: Plan, chance: random.Random) -> None:
    """Chunks that stay, chunks of larger ones, and chunks whose memory is used again."""
    for node, data in plan.files:
        node.content = writer.add_stream(len(data), cut(data, chance))


def cut(data: bytes, chance: random.Random) -> Iterator[Buffer]:
    room = bytearray(len(data))
    place = 0
    while place < len(data):
        chunk = data[place : place + chance.choice((1000, 4096, 5000, 131072, 1 << 20))]
        place += len(chunk)
        room[: len(chunk)] = chunk
        before, behind = chance.choice((0, 9, 9000)), chance.choice((0, 9, 99_999))
        inside = memoryview(bytes(before) + chunk + bytes(behind))[before : before + len(chunk)]
        yield chance.choice((chunk, inside, memoryview(room)[: len(chunk)]))
        room[: len(chunk)] = bytes(len(chunk))


def give_packed(writer: SquashWriter, plan: Plan, chance: random.Random) -> None:
    """Some large files in blocks that were compressed elsewhere, as the layers of an image come from processes."""
    plain = PlainImage(plan.codec, plan.block_size)
    for node, data in plan.files:
        if len(data) < plan.block_size or chance.random() < 0.3:
            node.content = writer.add(data)
        else:
            node.content = writer.add_packed(len(data), pack(data, plain, chance))


def pack(data: bytes, plain: PlainImage, chance: random.Random) -> Iterator[PackedBlocks]:
    size = plain.block_size
    place = 0
    while place < len(data):
        part = data[place : place + size * chance.choice((1, 2, 100))]
        place += len(part)
        blocks = [plain.pack_block(part[start : start + size]) for start in range(0, len(part), size)]
        words = array("I", [word for word, _ in blocks])
        yield PackedBlocks(len(part), checksum(part[:size]), words, memoryview(b"".join(bytes for _, bytes in blocks)))


def give_by_turns(writer: SquashWriter, plan: Plan, chance: random.Random) -> None:
    """Every way in one image."""
    rest = plan.files
    while rest:
        some = chance.choice((1, 5, 60))
        part, rest = Plan(plan.root, rest[:some], plan.codec, plan.block_size), rest[some:]
        chance.choice((give_each, give_streams, give_packed))(writer, part, chance)


def write_fast(plan: Plan, way: Way, seed: int, threads: int) -> bytes:
    file = io.BytesIO()
    options = SquashOptions(codec=plan.codec, block_size=plan.block_size, threads=threads)
    with SquashWriter(file, options) as writer:
        way(writer, plan, random.Random(seed))
        writer.finish(plan.root)
    return file.getvalue()


@functools.cache
def make_case(seed: int) -> tuple[Plan, bytes]:
    """A tree, and its image by the plain way."""
    plan = plan_tree(seed)
    return plan, write_plain(plan)


def write_plain(plan: Plan, *, has_tails: bool = False) -> bytes:
    image = PlainImage(plan.codec, plan.block_size, has_tails=has_tails)
    for node, data in plan.files:
        node.content = image.add(data)
    return image.finish(plan.root)


@pytest.mark.parametrize("seeds", [range(48), pytest.param(range(48, 200), marks=pytest.mark.long)])
@pytest.mark.parametrize("way", [give_each, give_streams, give_packed, give_by_turns])
def test_image_has_the_bytes_of_the_plain_way(way: Way, seeds: range) -> None:
    different = []
    for seed in seeds:
        plan, expected = make_case(seed)
        threads = THREADS[seed % len(THREADS)]
        if write_fast(plan, way, seed, threads) != expected:
            different.append((seed, plan.codec, plan.block_size, threads))
    assert not different


def test_directory_of_many_files_has_the_bytes_of_the_plain_way() -> None:
    """Runs of small files that others interrupt, in a listing with an index."""
    different = []
    for seed in range(20):
        chance = random.Random(seed)
        files = list[tuple[Node, bytes]]()
        root, folder = Node(NodeKind.DIRECTORY), Node(NodeKind.DIRECTORY)
        root.children[b"folder"] = folder
        if chance.random() < 0.7:  # records that do not begin at a multiple of their size
            link = folder.children[b"!"] = Node(NodeKind.SYMLINK)
            link.target = b"t" * chance.randrange(1, 40)
        others, longest = chance.choice((0, 3, 20, 300)), chance.choice((0, 0, 5, 200))
        for number in range(chance.choice((255, 256, 257, 4000, 9000))):
            node = folder.children[b"%07d" % number + b"n" * chance.randint(0, longest)] = Node(NodeKind.FILE)
            data = b"%d" % number if not others or chance.randrange(others) else b""
            node.size = len(data)
            files.append((node, data))
        for number in range(chance.choice((0, 3))):
            root.children[b"other name %d" % number] = chance.choice(files)[0]
        plan = Plan(root, files, "zstd", 4096)
        if write_fast(plan, give_each, seed, 2) != write_plain(plan):
            different.append(seed)
    assert not different


@pytest.mark.parametrize("seeds", [range(32), pytest.param(range(32, 200), marks=pytest.mark.long)])
def test_image_is_read_as_one_file_after_the_other_is(seeds: range) -> None:
    """The whole tree at once against each directory alone, contents by threads against those by none, and stretches."""
    different = []
    for seed in seeds:
        plan = make_case(seed)[0]
        image = write_plain(plan, has_tails=seed % 2 == 0)
        given = dict(plan.files)
        with SquashReader(io.BytesIO(image)) as alone, SquashReader(io.BytesIO(image), threads=4) as ahead:
            found = {b"": alone.read_tree()}
            found |= walk(found[b""])
            for path, node in [(b"", plan.root), *walk(plan.root)]:
                if node.kind is NodeKind.DIRECTORY:
                    single = alone.find(path)
                    is_alike = single is not None and describe_folder(found[path]) == describe_folder(single)
                else:
                    is_alike = node.kind is not NodeKind.FILE or is_read_alike(alone, ahead, found[path], given[node])
                if not is_alike:
                    different.append((seed, path))
    assert not different


def describe_folder(node: Node) -> tuple[object, ...]:
    return describe(node), {name: describe(child) for name, child in node.children.items()}


def is_read_alike(alone: SquashReader, ahead: SquashReader, node: Node, data: bytes) -> bool:
    if b"".join(alone.chunks(node)) != data or b"".join(ahead.chunks(node)) != data:
        return False
    size = alone.superblock.block_size
    stretches = [
        b"".join(ahead.stretch(node, start, min(2 * size, len(data) - start)))
        for start in range(0, len(data), 2 * size)
    ]
    return b"".join(stretches) == data
