# SPDX-License-Identifier: BSD-3-Clause
"""Layers become the same tree and the same image, by whatever way they are read, packed and written.

The plain way: pieces so short that every member is read by the general reader, no thread, no process, contents one by
one into an image that is made one file after the other. Stacks are generated; each failure is named by its seed.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace as changed

import pytest

from kedge.base.frozen import replace
from kedge.base.tree import Node, walk
from kedge.errors import KedgeError
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers.flatten import flatten
from kedge.image.layers.limits import FlattenOptions
from tests.builders import layers as build
from tests.builders.plain_squashfs import PlainImage

BLOCK = 4096
SHORT = 511  # bytes of a piece in which no header stands whole
LARGE_LAYER = 64 << 20  # compressed bytes, as a manifest may claim: worth a process
FOLDERS = [b"", b"./", b"/", b"a/", b"a/b/", b"./a/", b"a//b/", b"a/../c/", b"e" * 90 + b"/", b"f" * 98 + b"/"]
OWNERS = [(0, 0), (0, 0), (0, 0), (1000, 1000), (1, 0), (2097151, 5)]


class Stack:
    """Tars for the layers of an image, lowest first, of members that mostly are plain files."""

    def __init__(self, seed: int, *, most: int) -> None:
        self.chance = random.Random(seed)
        self.most = most
        self.names = [b"first"]  # of regular files so far, some of which others have replaced
        self.contents = [b"x"]
        self.tars = [self._make_layer() for _ in range(self.chance.choice((1, 2, 4)))]

    def _make_layer(self) -> bytes:
        members = [build.file("first", b"x")]
        while len(members) < self.most:
            members += self.chance.choice((self._make_run, self._make_run, self._make_other))()
        return build.layer(*members, end=self.chance.choice((build.END, b"", bytes(10240))))

    def _make_run(self) -> list[bytes]:
        """Files of one directory, as they stand together in a tar."""
        chance = self.chance
        folder, owner, time = chance.choice(FOLDERS), chance.choice(OWNERS), chance.choice((0, 1_700_000_000))
        fields = {345: b"deep/prefix"} if chance.random() < 0.1 else {}
        fields[265] = b"z" * 8  # the name of the owner
        members = [build.folder(folder)] if folder.strip(b"./") and chance.random() < 0.5 else []
        for _ in range(chance.choice((1, 2, 20, 60))):
            if chance.random() < 0.1:
                owner = chance.choice(OWNERS)
            if chance.random() < 0.2:
                time = chance.choice((0, 5, (1 << 33) - 1))
            name = folder + self._make_name(100 - len(folder))
            members.append(build.file(name, self._make_content(), owner=owner, mtime=time, fields=fields))
            self.names.append(b"deep/prefix/" + name if 345 in fields else name)
        if chance.random() < 0.2:  # a link whose header adds up to what a file's would
            fields[265] = b"z" * 7 + bytes([ord("z") - ord("2") + ord("0") - ord("a")])
            members.append(build.entry(folder + b"~", b"2", link=b"a", owner=owner, mtime=time, fields=fields))
        return members

    def _make_name(self, room: int) -> bytes:
        choose = self.chance.choice
        letters = bytes(byte for byte in range(1, 256) if byte != ord("/"))
        if self.chance.random() < 0.03:
            return b"b"  # which is a directory elsewhere
        if choose((True, True, False)):
            return b"%d" % self.chance.randrange(60)  # so that there are equal names, in a run and between layers
        name = choose((b"", b".", b"-", b"\xff", b"~")) + bytes(self.chance.choices(letters, k=choose((1, 9, room))))
        return name[:room] if name not in (b".", b"..") else b"x"

    def _make_content(self) -> bytes:
        chance = self.chance
        size = chance.choice((0, 1, 511, 512, 513, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 9))
        made = (
            lambda: chance.randbytes(size),
            lambda: b"%d" % chance.randrange(1000) * 9,
            lambda: bytes(size),
            lambda: chance.choice(self.contents),
            lambda: chance.choice(self.contents)[:-1] + b"!",
        )
        self.contents.append(chance.choice(made)())
        return self.contents[-1]

    def _make_other(self) -> list[bytes]:
        """What ends a run of plain files."""
        chance, name, data = self.chance, self._make_name(60)[:60] + b"o", self._make_content()
        hole = {b"GNU.sparse.map": b"%d,%d" % (BLOCK, len(data)), b"GNU.sparse.size": b"%d" % (2 * BLOCK + len(data))}
        makers: list[Callable[[], bytes]] = [
            lambda: build.symlink(name, chance.choice((b"a", b"c", b"first"))),
            lambda: build.hard_link(b"linked" + name[:20], chance.choice((b"first", chance.choice(self.names)))),
            lambda: build.whiteout(chance.choice(self.names)),
            lambda: build.opaque(chance.choice((b"a", b"a/b", b"c", b"e" * 90))),
            lambda: build.device(name, 1, 3),
            lambda: build.fifo(name),
            lambda: build.file(b"a/" + name, data, xattrs={b"user.x": b"1"}),
            lambda: build.file(b"a/" + name * 4, data),
            lambda: build.long_name(b"a/" + b"l" * 150) + build.file(b"a/short", data),
            lambda: build.pax({b"mtime": b"12.5", b"uid": b"70000"}) + build.file(b"a/" + name, data),
            lambda: build.pax(hole) + build.file(b"a/sparse", data),
            lambda: build.entry(b"a/" + name, chance.choice((b"7", b"\0")), data),
        ]
        if chance.random() < 0.02:
            makers = [lambda: build.pax({b"gid": b"9"}, b"g")]  # for all that follow
        return [chance.choice(makers)()]


Result = tuple[dict[bytes, tuple[object, ...]], bytes] | tuple[type[KedgeError], str]


def read_plain(stack: Stack, codec: str) -> Result:
    try:
        image = PlainImage(codec, BLOCK)
        root = flatten(build.sources(*stack.tars, chunk=SHORT), image, FlattenOptions(threaded=False))
        return draw(root), image.finish(root)
    except KedgeError as problem:
        return type(problem), str(problem)


def read_fast(stack: Stack, codec: str, options: FlattenOptions, *, chunk: int, compressed: bool) -> Result:
    layers = build.sources(*stack.tars, chunk=chunk, compressed=compressed)
    layers = [replace(layer, size=LARGE_LAYER) for layer in layers]
    file = io.BytesIO()
    try:
        with SquashWriter(file, SquashOptions(codec=codec, block_size=BLOCK, threads=options.threads)) as writer:
            root = flatten(layers, writer, options)
            writer.finish(root)
            return draw(root), file.getvalue()
    except KedgeError as problem:
        return type(problem), str(problem)


def draw(root: Node) -> dict[bytes, tuple[object, ...]]:
    """All of a tree but its contents, in the order of its names in memory."""
    firsts: dict[int, bytes] = {}
    return {
        path: (
            *(node.kind, node.mode, node.uid, node.gid, node.mtime, node.nanoseconds, node.xattrs, node.size),
            *(node.target, node.rdev, node.layer, list(node.children), firsts.setdefault(id(node), path)),
        )
        for path, node in [(b"", root), *walk(root)]
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [range(36), pytest.param(range(36, 400), marks=pytest.mark.long)])
def test_layers_give_the_image_of_the_plain_way(seeds: range) -> None:
    different, images = [], 0
    for seed in seeds:
        stack = Stack(seed, most=random.Random(seed).choice((3, 30, 200)))
        codec = ("zstd", "gzip:1", "none")[seed % 3]
        expected = read_plain(stack, codec)
        images += isinstance(expected[1], bytes)
        chunk = random.Random(seed).choice((512, 1000, 4096, 10_000, 1 << 16, 1 << 20))
        options = FlattenOptions(threads=seed % 4, ahead=64 << 20)
        if read_fast(stack, codec, options, chunk=chunk, compressed=seed % 2 == 0) != expected:
            different.append((seed, codec, chunk))
    assert not different
    assert images > 0.7 * len(seeds)  # of the others both ways said the same


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", [range(1000, 1003), pytest.param(range(1003, 1024), marks=pytest.mark.long)])
def test_layers_that_processes_pack_give_the_image_of_the_plain_way(seeds: range) -> None:
    different, images = [], 0
    options = FlattenOptions(threads=8, ahead=1 << 30)
    for seed in seeds:
        stack = Stack(seed, most=300)
        codec = ("zstd", "gzip:1", "none")[seed % 3]
        expected = read_plain(stack, codec)
        images += isinstance(expected[1], bytes)
        if read_fast(stack, codec, options, chunk=1 << 16, compressed=True) != expected:
            different.append((seed, codec))
        if read_fast(stack, codec, changed(options, verify_diff_ids=False), chunk=777, compressed=False) != expected:
            different.append((seed, codec, "short chunks"))
    assert not different
    assert images > 0.4 * len(seeds)
