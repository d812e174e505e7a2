# SPDX-License-Identifier: BSD-3-Clause
"""The contents of files in an image: blocks and fragments, decompressed in order, ahead of the caller on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from kedge.errors import CorruptImage
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs.layout import BLOCK_SIZE_MASK, BLOCK_STORED
from kedge.image.formats.squashfs.metadata_reader import ImageRange, IndexedTable, corrupt

Result = TypeVar("Result")
_GROUP_SIZE = 1 << 20  # bytes that are read and decompressed in one go
CACHED_FRAGMENTS = 16


class BlockPlace(NamedTuple):
    """A block to read: its offset in the image, its size word, and how many bytes it must decompress to."""

    position: int
    word: int
    length: int


class BlockReader:
    """Reads blocks of one image; with `threads` it decompresses ahead, in memory bounded by threads × 2 groups."""

    def __init__(self, image: ImageRange, codec: BlockCodec, block_size: int, threads: int) -> None:
        self._image = image
        self._codec = codec
        self._block_size = block_size
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._fragments: dict[int, bytes] = {}
        self._coming: tuple[int, Future[bytes]] | None = None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._coming = None

    def stream(self, places: Iterator[BlockPlace]) -> Iterator[bytes]:
        """The blocks in order."""
        groups = self._group(places)
        waiting: deque[Future[list[bytes]]] = deque()
        for group in groups:
            future = self._submit(partial(self._read_group, group)) if self._threads > 1 else None
            if future is None:
                while waiting:
                    yield from waiting.popleft().result()
                yield from self._read_group(group)
                continue
            waiting.append(future)
            if len(waiting) > 2 * self._threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()

    def _group(self, places: Iterator[BlockPlace]) -> Iterator[list[BlockPlace]]:
        group: list[BlockPlace] = []
        for place in places:
            group.append(place)
            if len(group) * self._block_size >= _GROUP_SIZE:
                yield group
                group = []
        if group:
            yield group

    def _read_group(self, group: list[BlockPlace]) -> list[bytes]:
        """Read blocks of one file, which follow each other on disk, by one read."""
        start = group[0].position
        last = group[-1]
        data = memoryview(self._image.read(start, last.position + (last.word & BLOCK_SIZE_MASK) - start, "data block"))
        return [self._expand(data[place.position - start :], place) for place in group]

    def _expand(self, data: memoryview, place: BlockPlace) -> bytes:
        position, word, length = place
        if not word:
            return bytes(length)  # not shared: other threads need other lengths at the same time
        stored = data[: word & BLOCK_SIZE_MASK]
        if word & BLOCK_STORED:
            result = bytes(stored)
        else:
            try:
                result = self._codec.decompress_block(stored, self._block_size)
            except CorruptImage as problem:
                raise corrupt("data block", position, problem.message) from problem
        if len(result) != length:
            raise corrupt("data block", position, f"gives {len(result)} bytes where {length} are needed")
        return result

    def check_word(self, word: int, position: int, what: str) -> int:
        """The size on disk that a size word gives."""
        size = word & BLOCK_SIZE_MASK
        if size > self._block_size or word & ~(BLOCK_SIZE_MASK | BLOCK_STORED):
            raise corrupt(what, position, f"size word {word:#x} is larger than a block of {self._block_size}")
        return size

    def fragment(self, table: IndexedTable, number: int, *, asked_by: str) -> bytes:
        """A whole fragment block; the next one is begun, because files mostly follow each other."""
        block = self._fragments.get(number)
        if block is not None:
            return block
        coming, self._coming = self._coming, None
        if coming is not None and coming[0] == number:
            block = coming[1].result()
        else:
            block = self.read_fragment(table.get(number, asked_by=asked_by))
        if len(self._fragments) >= CACHED_FRAGMENTS:
            del self._fragments[next(iter(self._fragments))]
        self._fragments[number] = block
        if self._threads > 1 and number + 1 < table.count and number + 1 not in self._fragments:
            self._begin_fragment(table, number + 1)
        return block

    def _begin_fragment(self, table: IndexedTable, number: int) -> None:
        try:
            entry = table.get(number, asked_by="")
        except CorruptImage:  # nobody asked for this one: whoever does gets the error
            return
        future = self._submit(partial(self.read_fragment, entry))
        if future is not None:
            self._coming = (number, future)

    def read_fragment(self, entry: tuple[int, ...]) -> bytes:
        """The fragment block that an entry of the table is about."""
        position, word, _ = entry
        size = self.check_word(word, position, "fragment block")
        data = memoryview(self._image.read(position, size, "fragment block"))
        if word & BLOCK_STORED:
            return bytes(data)
        try:
            return self._codec.decompress_block(data, self._block_size)
        except CorruptImage as problem:
            raise corrupt("fragment block", position, problem.message) from problem

    def _submit(self, call: Callable[[], Result]) -> Future[Result] | None:
        """Run on a thread; None where no thread can be had."""
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="kedge-decompress")
            return self._pool.submit(call)
        except RuntimeError:  # the limit on processes
            self._threads = 1
            return None
