# SPDX-License-Identifier: BSD-3-Clause
"""Compresses blocks on threads and writes them in the order they came, so the result does not depend on the threads.

Blocks are collected in batches of a few megabytes: a worker takes a batch, compresses it in one call without the
interpreter lock, and whoever finishes the oldest batch writes it. Buffers are reused and their number is bounded.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from queue import SimpleQueue

from kedge.base.tree import Buffer
from kedge.image.formats.compression.blocks import BlockCodec
from kedge.image.formats.squashfs.image_output import OutputFile
from kedge.image.formats.squashfs.layout import BLOCK_SIZE_MASK, BLOCK_STORED
from kedge.system.threads import start_thread

_BATCH_SIZE = 2 << 20
_WIDE_BATCH_SIZE = 4 << 20  # with many threads: each batch needs the interpreter lock a few times
_WIDE_FROM = 6  # threads
_BATCH_ENTRIES = 4096  # holes take no room in a batch, but memory elsewhere
# The bytes of a block; None for a block of zeros; the number of an earlier block with the same bytes; or its size as
# the image notes it and its bytes, compressed elsewhere
_Entry = memoryview | int | tuple[int, memoryview] | None


class Batch:
    """Consecutive blocks, in its own buffer or wherever they were found."""

    __slots__ = ("capacity", "entries", "first", "is_ready", "packed", "used", "view", "weight")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.view = memoryview(b"")  # its buffer, from the first block on that belongs there
        self.entries: list[_Entry] = []
        self.packed: list[Buffer] = []
        self.reset(0)

    def reset(self, first: int) -> None:
        """Make it empty; `first` is the number of its first block."""
        self.first = first
        self.used = 0  # bytes of its buffer
        self.weight = 0  # bytes of all its blocks
        self.is_ready = False
        self.entries.clear()
        self.packed = []

    def compress(self, codec: BlockCodec) -> None:
        """Fill `packed` with one buffer for each entry that has bytes."""
        self.packed = list(codec.compress_blocks([entry for entry in self.entries if isinstance(entry, memoryview)]))


class BlockPipeline:
    """Blocks go in through `slot` and `close_block`, or `add_block`; `positions` and `sizes` say where N was written.

    Not to be shared: one thread puts blocks in. An error of a worker (no space left) is raised by the next call.
    """

    def __init__(self, output: OutputFile, codec: BlockCodec, block_size: int, threads: int, *, start: int) -> None:
        self.positions = array("Q")
        self.sizes = array("I")
        self.end = start  # where the next batch is written
        self._output = output
        self._codec = codec
        self.block_size = block_size
        self._wanted = threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Batch | None] = SimpleQueue()
        self._in_flight: deque[Batch] = deque()
        self._free: list[Batch] = []
        self._capacity = max(block_size, _BATCH_SIZE if threads < _WIDE_FROM else _WIDE_BATCH_SIZE)
        self._limit = max(threads + min(threads, 4), 1)
        self._committing = threading.Lock()
        # Not a condition: where a signal's handler raises in the caller, that one would stay held, and `stop` wait
        self._written: SimpleQueue[Batch | None] = SimpleQueue()
        self._unwritten = 0  # batches that were handed over and not yet taken back
        self._committed = 0  # blocks that can be read back
        self._failure: BaseException | None = None
        self._is_stopped = False
        self._batch = Batch(self._capacity)

    @property
    def next_number(self) -> int:
        """The number that the next block gets."""
        return self._batch.first + len(self._batch.entries)

    def slot(self) -> memoryview:
        """Where the bytes of the next block belong: `block_size` bytes, valid until the next call of this."""
        self._make_room()
        batch = self._batch
        if not batch.view:
            batch.view = memoryview(bytearray(self._capacity))
        return batch.view[batch.used : batch.used + self.block_size]

    def close_block(self, size: int) -> int:
        """The first `size` bytes of the slot are a block; returns its number."""
        batch = self._batch
        start = batch.used
        batch.used = start + size
        batch.weight += size
        batch.entries.append(batch.view[start : start + size])
        return batch.first + len(batch.entries) - 1

    def add_block(self, block: memoryview) -> None:
        """A block that stands elsewhere, in bytes that never change: it is not copied. The slot is void."""
        self._make_room()
        self._batch.weight += len(block)
        self._batch.entries.append(block)

    def _make_room(self) -> None:
        batch = self._batch
        if batch.weight + self.block_size > self._capacity or len(batch.entries) >= _BATCH_ENTRIES:
            self._submit()

    def add_packed(self, word: int, data: memoryview) -> None:
        """A block that was compressed elsewhere; `word` is its size as the image notes it. The slot is void."""
        self._make_room()
        self._batch.entries.append((word, data))
        self._batch.weight += len(data)

    def add_sparse(self) -> None:
        """A block of zeros, which takes no room. The slot stays as it is."""
        self._batch.entries.append(None)

    def add_same(self, block: int) -> None:
        """A block with the bytes of an earlier one. The slot stays as it is."""
        self._batch.entries.append(block)

    def read_block(self, block: int) -> bytes | None:
        """The bytes of a block, wherever it is now; None if it is sparse."""
        batch = self._batch
        if block >= batch.first:
            entry = batch.entries[block - batch.first]
            if isinstance(entry, int):
                return self.read_block(entry)
            if isinstance(entry, tuple):
                return self._unpack(*entry)
            return None if entry is None else bytes(entry)
        self._await(block)
        word = self.sizes[block]
        if not word:
            return None
        return self._unpack(word, self._output.read_at(self.positions[block], word & BLOCK_SIZE_MASK))

    def _unpack(self, word: int, data: Buffer) -> bytes:
        return bytes(data) if word & BLOCK_STORED else self._codec.decompress_block(data, self.block_size)

    def holds(self, block: int, word: int, data: memoryview) -> bool:
        """Whether a block is stored as these bytes: then it is the same, because a codec packs equal blocks equally."""
        if block >= self._batch.first:
            self._submit()
        self._await(block)
        if self.sizes[block] != word:
            return False
        return not word or self._output.read_at(self.positions[block], word & BLOCK_SIZE_MASK) == data

    def _await(self, block: int) -> None:
        """Wait until a block that was handed over is written."""
        while block >= self._committed and self._failure is None:
            self._take_back()
        self._raise_failure()

    def finish(self) -> None:
        """Write everything that is under way and end the threads."""
        if self._batch.entries:
            self._submit()
        while self._unwritten and self._failure is None:
            self._take_back()
        self.stop()
        self._raise_failure()

    def stop(self) -> None:
        """End the threads, whatever is under way; may be called twice."""
        self._is_stopped = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _submit(self) -> None:
        if self._is_stopped:
            raise ValueError("the image was finished or given up already")
        batch = self._batch
        while not self._written.empty() or (self._unwritten >= self._limit and self._failure is None):
            self._take_back()
        self._unwritten += 1
        self._in_flight.append(batch)
        following = self._free.pop() if self._free else Batch(self._capacity)
        self._raise_failure()
        following.reset(batch.first + len(batch.entries))
        self._batch = following
        self._start_thread()
        if self._threads:
            self._jobs.put(batch)
        else:
            self._process(batch)
            self._raise_failure()

    def _take_back(self) -> None:
        """Wait until one more batch is written, or something fails; the caller's thread alone does so."""
        batch = self._written.get()
        if batch is not None:
            self._unwritten -= 1
            self._free.append(batch)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self.stop()
            raise self._failure

    def _start_thread(self) -> None:
        if len(self._threads) >= self._wanted:
            return
        thread = threading.Thread(target=self._work, name="kedge-compress", daemon=True)
        try:
            if start_thread(thread):
                self._threads.append(thread)
            else:  # make do with those there are, or with the caller's own thread
                self._wanted = len(self._threads)
        except BaseException:  # by a signal's handler; the thread may run, and `stop` does not know it
            self._jobs.put(None)
            raise

    def _work(self) -> None:
        while (batch := self._jobs.get()) is not None:
            self._process(batch)

    def _process(self, batch: Batch) -> None:
        try:
            if self._failure is None and not self._is_stopped:
                batch.compress(self._codec)
                batch.is_ready = True
                self._commit_ready()
        except BaseException as problem:  # handed to the caller's thread
            self._failure = self._failure or problem
            self._written.put(None)

    def _commit_ready(self) -> None:
        """Write the batches at the head of the queue that are compressed."""
        with self._committing:
            while self._in_flight and self._in_flight[0].is_ready and self._failure is None:
                batch = self._in_flight[0]
                self._commit(batch)
                batch.packed = []
                batch.entries.clear()  # what they keep alive may be larger than the batch
                self._in_flight.popleft()
                self._committed = len(self.sizes)
                self._written.put(batch)

    def _commit(self, batch: Batch) -> None:
        packed = iter(batch.packed)
        pieces: list[Buffer] = []
        position = self.end
        data: Buffer
        for entry in batch.entries:
            word = size = 0
            if isinstance(entry, memoryview):
                word, data = choose_stored(entry, next(packed))
                size = len(data)
                pieces.append(data)
            elif isinstance(entry, tuple):
                word, data = entry
                size = len(data)
                pieces.append(data)
            elif entry is not None:  # rare; what is copied may stand in this very batch, so it has to be written first
                self._write(pieces)
                word = self.sizes[entry]
                size = word & BLOCK_SIZE_MASK
                pieces.append(self._output.read_at(self.positions[entry], size))
            self.positions.append(position)
            self.sizes.append(word)
            position += size
        self._write(pieces)

    def _write(self, pieces: list[Buffer]) -> None:
        self.end += self._output.write_all_at(self.end, pieces)
        pieces.clear()
        self._output.send(self.end)


# How one block is stored: compressed, as it is where that is no larger, or not at all where it is all zeros.


def is_hole(block: memoryview, zeros: bytes) -> bool:
    """Whether a block is all zeros; only those that begin and end with zero are looked at closer."""
    return block[0] == 0 and block[-1] == 0 and bytes(block) == zeros[: len(block)]


def choose_stored(block: memoryview, packed: Buffer) -> tuple[int, Buffer]:
    """The size as the image notes it, and the bytes that are stored."""
    if len(packed) >= len(block):
        return len(block) | BLOCK_STORED, block
    return len(packed), packed
