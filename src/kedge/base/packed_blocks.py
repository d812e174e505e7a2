# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of a large file that were compressed before it was known where in the image they go."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from kedge.base.frozen import frozen
from kedge.base.tree import ContentSink


@frozen
class Packing:
    """How a sink wants blocks to be made."""

    codec: str
    block_size: int


class PackedBlocks:
    """Consecutive blocks of one file; `len` is how many bytes of the file they are.

    `words` are the sizes of the blocks as an image notes them, 0 for a block of zeros; `data` has one after the other.
    """

    __slots__ = ("checksum", "data", "size", "words")

    def __init__(self, size: int, checksum: int, words: array[int], data: memoryview) -> None:
        self.size = size
        self.checksum = checksum  # of the first block as it is in the file
        self.words = words
        self.data = data

    def __len__(self) -> int:
        return self.size


@runtime_checkable
class PackedSink(ContentSink, Protocol):
    """A sink that takes blocks as well as bytes."""

    packing: Packing

    def add_packed(self, size: int, chunks: Iterator[PackedBlocks]) -> object:
        """Take a file of `size` bytes, at least a block; only the last of its blocks may be shorter than a block."""
        ...
