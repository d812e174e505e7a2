# SPDX-License-Identifier: BSD-3-Clause
"""Generated trees on their way into images: by each call of the SquashFS writer, and as layers that are flattened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kedge.base.frozen import replace
from kedge.base.packed_blocks import PackedBlocks
from kedge.base.tree import Node
from kedge.image.formats.compression.blocks import checksum, open_codec
from kedge.image.formats.squashfs import compress_pipeline, content_writer, inode_writer, table_writer
from kedge.image.formats.squashfs.compress_pipeline import choose_stored, is_hole
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter
from kedge.image.layers import layers_ahead, pack_layer
from kedge.image.layers.flatten import flatten
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.parcels import ParcelSender
from kedge.system.libc import create_memory
from tests.builders import layers as build
from tests.builders.generated_layers import write_tars
from tests.builders.generated_trees import Thing, Tree
from tests.builders.image_judges import TYPES

KINDS = {number: kind for kind, number in TYPES.items()}
BLOCKS = (*([4096] * 14), 8192, 16384, 65536, 131072, 131072, 1 << 20)
CODECS = ("zstd", "zstd", "zstd:1", "zstd:19", "gzip", "gzip:1", "gzip:9", "lz4", "none")
THREADS = (0, 0, 1, 2, 8)


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to write one tree, all of it from the seed."""

    seed: int
    block: int
    codec: str
    threads: int

    @classmethod
    def choose(cls, seed: int) -> Trial:
        """Mostly small blocks, so that trees are small too."""
        rng = random.Random(f"trial {seed}")
        block = rng.choice(BLOCKS)
        codec = rng.choice(CODECS)
        if block > 65536 and codec == "zstd:19":
            codec = "zstd"
        return cls(seed, block, codec, rng.choice(THREADS))

    @property
    def rng(self) -> random.Random:
        return random.Random(f"tree {self.seed}")

    @contextlib.contextmanager
    def open_writer(self, path: Path) -> Iterator[SquashWriter]:
        """A writer into a file; half of the trials with batches and caches so small that small trees fill several."""
        rng = random.Random(f"tune {self.seed}")
        options = SquashOptions(self.codec, self.block, self.threads)
        with pytest.MonkeyPatch.context() as patch, path.open("w+b") as file:
            if rng.random() < 0.5:
                size = self.block * rng.choice((1, 2, 3, 5))
                patch.setattr(compress_pipeline, "_BATCH_SIZE", size)
                patch.setattr(compress_pipeline, "_WIDE_BATCH_SIZE", size)
                patch.setattr(compress_pipeline, "_BATCH_ENTRIES", rng.choice((1, 2, 3, 10)))
                patch.setattr(content_writer, "CACHED_FRAGMENTS", rng.choice((1, 2)))
                if rng.random() < 0.5:  # different contents of one size mostly have the same checksum
                    patch.setattr(content_writer, "checksum", lambda data: checksum(data) & 1)
                patch.setattr(inode_writer, "_TOGETHER", rng.choice((0, 1, 7)))
                patch.setattr(table_writer, "_TOGETHER", rng.choice((1, 2)))
                patch.setattr(pack_layer, "_UNIT", min(size, 2 << 20))  # its own; a parcel has room for no more
            with SquashWriter(file, options) as writer:
                yield writer


def write_by_calls(trial: Trial, tree: Tree, path: Path) -> None:
    """Hand over files one by one or many at once, whole, in pieces or packed; all as the trial's seed says."""
    rng = random.Random(f"calls {trial.seed}")
    with trial.open_writer(path) as writer:
        tokens = _Caller(rng, trial, writer).hand_over([t for t in dict.fromkeys(tree.values()) if t.data])
        writer.finish(make_nodes(tree, tokens))


def make_nodes(tree: Tree, tokens: Mapping[int, object]) -> Node:
    """A tree as kedge has it; `tokens` are the contents by the identity of their things. Returns the root."""
    nodes: dict[int, Node] = {}
    for place, thing in tree.items():
        node = nodes.get(id(thing))
        if node is None:
            node = nodes[id(thing)] = Node(KINDS[thing.kind])
            node.mode, node.uid, node.gid, node.mtime = thing.mode, thing.uid, thing.gid, thing.mtime
            node.size, node.content = len(thing.data), tokens.get(id(thing))
            node.target, node.rdev, node.xattrs = thing.target, thing.rdev, tuple(sorted(thing.xattrs.items()))
        if place:
            folder, _, name = place.rpartition(b"/")
            nodes[id(tree[folder])].children[name] = node
    return nodes[id(tree[b""])]


class _Caller:
    """Calls the writer with the same contents in different ways."""

    def __init__(self, rng: random.Random, trial: Trial, writer: SquashWriter) -> None:
        self._rng = rng
        self._trial = trial
        self._writer = writer

    def hand_over(self, things: list[Thing]) -> dict[int, object]:
        """The token of each thing."""
        rng, tokens = self._rng, {}
        favourite = rng.choice((None, self._add, self._stream, self._pack))
        while things:
            count = rng.choice((1, 1, 1, 2, 5, 100))
            run, things = things[:count], things[count:]
            if count > 1:
                made = self._add_slices([each.data for each in run])
            else:
                made = [(favourite or rng.choice((self._add, self._stream, self._pack)))(run[0].data)]
            tokens.update(zip(map(id, run), made, strict=True))
        return tokens

    def _add(self, data: bytes) -> object:
        way = self._rng.randrange(3)
        if way == 0:
            return self._writer.add(data)
        given = bytearray(data)
        token = self._writer.add(given if way == 1 else memoryview(given))
        given[:] = b"\xee" * len(given)  # the caller may use its buffer again
        return token

    def _add_slices(self, contents: list[bytes]) -> list[object]:
        gap = self._rng.choice((0, 1, 512))
        piece, starts = bytearray(), []
        for data in contents:
            piece += bytes(gap)
            starts.append(len(piece))
            piece += data
        whole = memoryview(bytes(piece))
        places = zip(starts, map(len, contents), strict=True)
        return [self._writer.add(whole[start : start + size]) if size else None for start, size in places]

    def _stream(self, data: bytes) -> object:
        return self._writer.add_stream(len(data), self._cut(data))

    def _cut(self, data: bytes) -> Iterator[bytes | bytearray | memoryview]:
        """Pieces that end at, before and behind the ends of blocks; some in a buffer that is used again."""
        rng, block, place = self._rng, self._trial.block, 0
        buffer = bytearray(len(data) + 1) if rng.random() < 0.3 else None
        steps = rng.choice(
            ((block,), (len(data),), (1, block - 1, block, block + 1, 3 * block), (block // 2, block // 3))
        )
        while place < len(data):
            piece = data[place : place + rng.choice(steps)]
            place += len(piece)
            if buffer is None:
                yield memoryview(piece) if rng.random() < 0.3 else piece
            else:
                buffer[: len(piece)] = piece
                yield memoryview(buffer)[: len(piece)]
                buffer[:] = b"\xee" * len(buffer)

    def _pack(self, data: bytes) -> object:
        """As a process does that packs a layer; files smaller than a block never come packed."""
        if len(data) < self._trial.block:
            return self._add(data)
        return self._writer.add_packed(len(data), self._packed(data))

    def _packed(self, data: bytes) -> Iterator[PackedBlocks]:
        block, zeros, codec = self._trial.block, bytes(self._trial.block), open_codec(self._trial.codec)
        place = 0
        while place < len(data):
            part = data[place : place + block * self._rng.choice((1, 2, 3, 100))]
            place += len(part)
            views = [memoryview(part[start : start + block]) for start in range(0, len(part), block)]
            made = [(0, b"") if is_hole(v, zeros) else choose_stored(v, codec.compress_blocks([v])[0]) for v in views]
            words = array("I", [word for word, _ in made])
            yield PackedBlocks(len(part), checksum(views[0]), words, memoryview(b"".join(bytes(x) for _, x in made)))


class PackingThread:
    """In place of a process that packs a layer: the same code at the same pipes, in a thread of the test."""

    def __init__(self, verb: str, request: str) -> None:
        given, self.input = os.pipe()
        self.messages, messaging = os.pipe()
        replied, self.replies = os.pipe()
        self.memory = create_memory("test")
        asked = pack_layer.PackRequest(**json.loads(request))
        self._own = (given, messaging, replied)
        self._thread = threading.Thread(target=self._pack, args=(asked,), daemon=True)
        self._thread.start()

    def _pack(self, asked: pack_layer.PackRequest) -> None:
        given, messaging, replied = self._own
        pack_layer.pack_layer(asked, given, ParcelSender(messaging, replied, self.memory))
        for number in self._own:
            os.close(number)

    def kill(self) -> None:
        """A thread ends by itself when all was read."""

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join(60)
        for number in (self.messages, self.replies, self.memory):
            os.close(number)


def write_by_layers(trial: Trial, path: Path, *, processes: bool = False) -> Tree:
    """Flatten generated layers into an image; returns the tree that they mean. `processes`: real ones pack them."""
    rng = random.Random(f"layers {trial.seed}")
    tars, tree = write_tars(trial.rng, trial.block)
    packed = processes or rng.random() < 0.4
    given = build.sources(*tars, chunk=rng.choice((511, 4096, 1 << 16)), compressed=rng.random() < 0.5)
    options = FlattenOptions(threaded=packed or rng.random() < 0.5, threads=8 if packed else rng.choice((1, 3)),
                             ahead=1 << 30 if packed else rng.choice((0, 1 << 20)))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if packed:
            patch.setattr(layers_ahead, "_LARGE_LAYER", 1)
            given = [replace(each, size=1 << 20) for each in given]
        if not processes:
            patch.setattr(layers_ahead, "PipedWorker", PackingThread)
        with trial.open_writer(path) as writer:
            writer.finish(flatten(given, writer, options))
    return tree
