# SPDX-License-Identifier: BSD-3-Clause
"""The content of regular files on its way into an image: blocks of large files, fragments of small ones, each once.

A file smaller than a block shares a fragment block with its neighbours. Equal files are stored once: size and checksum
find a candidate, then the bytes are compared with what was stored, read back from the image if need be.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kedge.base.packed_blocks import PackedBlocks
from kedge.base.tree import Buffer, Node
from kedge.errors import FileProblem
from kedge.image.formats.compression.blocks import checksum
from kedge.image.formats.squashfs.compress_pipeline import BlockPipeline, is_hole
from kedge.image.formats.squashfs.layout import BLOCK_SIZE_MASK, LAST_TIME

CACHED_FRAGMENTS = 8
_SHARE = 4  # a block may keep bytes alive that are at most so many times what the image takes of them


@dataclass(slots=True)
class FileBlocks:
    """Token of a file with blocks of its own: their numbers are consecutive; `sparse` bytes of it are holes."""

    first: int
    count: int = 0
    sparse: int = 0


class ContentStore:
    """Takes file contents. Tokens: None (empty), int (offset << OFFSET_SHIFT | fragment), or `FileBlocks`."""

    def __init__(self, pipeline: BlockPipeline, block_size: int) -> None:
        self.fragments = array("Q")  # block number of each fragment
        self._pipeline = pipeline
        self._block_size = block_size
        self._fragment = bytearray(block_size)
        self._view = memoryview(self._fragment)
        self._used = 0
        self._zeros = bytes(block_size)
        self._small: dict[int, int] = {}
        self._large: dict[tuple[int, int], FileBlocks] = {}
        self._cache: dict[int, bytes] = {}

    def add(self, data: Buffer) -> object:
        """Take a whole file."""
        size = len(data)
        if size >= self._block_size or not size:
            return self.add_stream(size, (data,))
        return self._add_small(data, size << 32 | checksum(data))

    def _add_small(self, data: Buffer, key: int) -> int:
        """Take a file smaller than a block, that is not empty; `key` finds candidates for equality."""
        known = self._small.get(key)
        if known is not None and self._is_stored_at(known, data):
            return known
        size, offset = len(data), self._used
        if offset + size > self._block_size:
            self.close_fragment()
            offset = 0
        self._view[offset : offset + size] = data
        self._used = offset + size
        token = offset << OFFSET_SHIFT | len(self.fragments)
        if known is None:
            self._small[key] = token
        return token

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Take a file of `size` bytes in chunks."""
        if size < self._block_size:
            data = bytearray()
            for chunk in chunks:  # each is valid only until the next is asked for
                data += chunk
                if len(data) > size:
                    break
            if len(data) != size:
                raise _wrong_size(size, len(data))
            return self.add(data) if size else None
        return _FileIntake(self, self._pipeline, size).take(chunks)

    def add_packed(self, size: int, chunks: Iterable[PackedBlocks]) -> object:
        """Take a file of at least a block, in blocks that were compressed elsewhere."""
        return _FileIntake(self, self._pipeline, size).take_packed(chunks)

    def close_fragment(self) -> None:
        """Send the fragment block that is being filled on its way; the next small file begins a new one."""
        if self._used:
            self._pipeline.slot()[: self._used] = self._view[: self._used]
            self.fragments.append(self._pipeline.close_block(self._used))
            self._used = 0

    def is_hole(self, block: memoryview) -> bool:
        """Whether a block is all zeros."""
        return is_hole(block, self._zeros)

    def find_large(self, size: int, first_checksum: int) -> FileBlocks | None:
        """A stored file of this size whose first block has this checksum."""
        return self._large.get((size, first_checksum))

    def remember_large(self, size: int, first_checksum: int, token: FileBlocks) -> None:
        """Make a large file known as a candidate, unless there is one already."""
        self._large.setdefault((size, first_checksum), token)

    def _is_stored_at(self, token: int, data: Buffer) -> bool:
        index, offset = split_token(token)
        end = offset + len(data)
        if index == len(self.fragments):
            return self._fragment[offset:end] == data
        block = self._cache.get(index)
        if block is None:
            block = self._cache[index] = self._pipeline.read_block(self.fragments[index]) or b""
            if len(self._cache) > CACHED_FRAGMENTS:
                del self._cache[next(iter(self._cache))]
        return block[offset:end] == bytes(data)


class _FileIntake:
    """One large file: fills slots, finds holes, and compares with a candidate as long as they agree."""

    def __init__(self, store: ContentStore, pipeline: BlockPipeline, size: int) -> None:
        self._store = store
        self._pipeline = pipeline
        self._size = size
        self._token: FileBlocks | None = None
        self._candidate: FileBlocks | None = None
        self._checksum = 0  # of the first block
        self._agreed = 0  # blocks that equal the candidate's and were not stored again

    def take(self, chunks: Iterable[Buffer]) -> FileBlocks:
        slot, capacity, filled, total = memoryview(b""), self._pipeline.block_size, 0, 0
        for chunk in chunks:
            position, end = 0, len(chunk)
            total += end
            if total > self._size:
                raise _wrong_size(self._size, total)
            view = memoryview(chunk)
            whole = _find_keepable(view, capacity)
            while position < end:
                if not filled:
                    if end - position >= whole:
                        self._close(view[position : position + capacity], is_kept=True)
                        position += capacity
                        continue
                    slot = self._pipeline.slot()
                step = min(end - position, capacity - filled)
                slot[filled : filled + step] = view[position : position + step]
                filled += step
                position += step
                if filled == capacity:
                    self._close(slot)
                    filled = 0
        if total != self._size:
            raise _wrong_size(self._size, total)
        if filled:
            self._close(slot[:filled])
        return self._settle()

    def take_packed(self, chunks: Iterable[PackedBlocks]) -> FileBlocks:
        """Take blocks that are compressed already."""
        total, capacity = 0, self._pipeline.block_size
        for chunk in chunks:
            if not total:
                self._checksum = chunk.checksum
                self._candidate = self._store.find_large(self._size, self._checksum)
            total += len(chunk)
            start = 0
            for index, word in enumerate(chunk.words):
                end = start + (word & BLOCK_SIZE_MASK)
                hole = min(capacity, len(chunk) - index * capacity)
                self._close_packed(word, chunk.data[start:end], hole)
                start = end
        if total != self._size:
            raise _wrong_size(self._size, total)
        return self._settle()

    def _close_packed(self, word: int, data: memoryview, size: int) -> None:
        if self._candidate is not None:
            if self._pipeline.holds(self._candidate.first + self._agreed, word, data):
                self._agreed += 1
                return
            self._part_from_candidate(self._candidate)
            self._candidate = None
        token = self._token
        if token is None:
            token = self._token = FileBlocks(self._pipeline.next_number)
        token.count += 1
        if word:
            self._pipeline.add_packed(word, data)
        else:
            token.sparse += size
            self._pipeline.add_sparse()

    def _close(self, block: memoryview, *, is_kept: bool = False) -> None:
        if self._token is None and self._candidate is None:
            self._checksum = checksum(block)
            self._candidate = self._store.find_large(self._size, self._checksum)
        if self._candidate is not None:
            if self._equals_candidate(self._candidate, block):
                self._agreed += 1
                return
            self._part_from_candidate(self._candidate)
            self._candidate = None
        self._put(block, is_kept=is_kept)

    def _put(self, block: memoryview, *, is_kept: bool) -> None:
        token = self._token
        if token is None:
            token = self._token = FileBlocks(self._pipeline.next_number)
        token.count += 1
        if self._store.is_hole(block):
            token.sparse += len(block)
            self._pipeline.add_sparse()
        elif is_kept:
            self._pipeline.add_block(block)
        else:
            self._pipeline.close_block(len(block))

    def _equals_candidate(self, candidate: FileBlocks, block: memoryview) -> bool:
        stored = self._pipeline.read_block(candidate.first + self._agreed)
        return self._store.is_hole(block) if stored is None else stored == bytes(block)

    def _part_from_candidate(self, candidate: FileBlocks) -> None:
        """The files differ after all: give this one blocks of its own for the part that was equal."""
        token = self._token = FileBlocks(self._pipeline.next_number, self._agreed)
        for number in range(candidate.first, candidate.first + self._agreed):
            if self._pipeline.read_block(number) is None:
                token.sparse += self._pipeline.block_size
                self._pipeline.add_sparse()
            else:
                self._pipeline.add_same(number)

    def _settle(self) -> FileBlocks:
        if self._candidate is not None:
            return self._candidate
        token = self._token or FileBlocks(self._pipeline.next_number)
        self._store.remember_large(self._size, self._checksum, token)
        return token


def _find_keepable(chunk: memoryview, capacity: int) -> int:
    """From how many bytes on a block stays where it is: where they cannot change and keep little else alive."""
    may_keep = isinstance(chunk.obj, bytes) and len(chunk) * _SHARE >= len(chunk.obj)
    return capacity if may_keep else len(chunk) + 1


def _wrong_size(promised: int, actual: int) -> FileProblem:
    return FileProblem(
        f"a file has {actual} bytes where {promised} were announced",
        hint="it changed while kedge read it: try again when no program writes to it",
    )


# Inodes of small files in bulk: columns of words instead of one record after the other.
#
# A file in a fragment block, with one name and no attributes, has an inode of eight words of 32 bits. Most files of
# most images are such ones, so their columns are filled by loops in C. The bytes are those that `BASIC_FILE` would
# pack.

SIZE = 32  # of each inode
OFFSET_SHIFT = 32  # a token is offset << 32 | fragment: two words of the inode, in their order
_FRAGMENT_MASK = (1 << OFFSET_SHIFT) - 1
_WORDS = 8
_FRAGMENT, _OFFSET = (0, 1) if sys.byteorder == "little" else (1, 0)  # halves of a token


def split_token(token: int) -> tuple[int, int]:
    """The fragment where a file's content is, and the offset in it."""
    return token & _FRAGMENT_MASK, token >> OFFSET_SHIFT


def find_others(nodes: list[Node]) -> list[int]:
    """Places of nodes that have other inodes."""
    return [
        place
        for place, node in enumerate(nodes)
        if type(node.content) is not int or node.xattrs or not 0 <= node.mtime <= LAST_TIME
    ]


def pack_all_small(nodes: list[Node], number: int, ids: Mapping[int, int]) -> bytes:
    """Pack inodes as `pack_small`; empty where a node has another inode, which is found at less than `find_others`."""
    if any([node.xattrs for node in nodes]):
        return b""
    try:
        return pack_small(nodes, number, ids)
    except (TypeError, OverflowError):  # a content that is no token, a time that does not fit
        return b""


def pack_small(nodes: list[Node], number: int, ids: Mapping[int, int]) -> bytes:
    """Inodes of small files alone, numbered from `number` on; new owners go into `ids` in the order of the nodes.

    Raises TypeError or OverflowError, before anything goes into `ids`, where a file is no small one.
    """
    count, first = len(nodes), nodes[0]
    tokens: list[int] = [node.content for node in nodes]  # type: ignore[misc]  # of small files: numbers
    places = array("I", array("Q", tokens).tobytes())
    times = array("I", [node.mtime for node in nodes])
    mode, user, group = first.mode, first.uid, first.gid
    words = array("I", [2 | (mode & 0o7777) << 16, ids[user] | ids[group] << 16, 0, 0, 0, 0, 0, 0]) * count
    if not all([node.mode == mode and node.uid == user and node.gid == group for node in nodes]):
        words[0::_WORDS] = array("I", [2 | (node.mode & 0o7777) << 16 for node in nodes])
        words[1::_WORDS] = array("I", [ids[node.uid] | ids[node.gid] << 16 for node in nodes])
    words[2::_WORDS] = times
    words[3::_WORDS] = array("I", list(range(number, number + count)))  # from a list: other iterables cost more
    words[5::_WORDS] = places[_FRAGMENT::2]
    words[6::_WORDS] = places[_OFFSET::2]
    words[7::_WORDS] = array("I", [node.size for node in nodes])
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
