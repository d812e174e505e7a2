# SPDX-License-Identifier: BSD-3-Clause
"""How one block is stored: compressed, as it is where that is no larger, or not at all where it is all zeros."""

from __future__ import annotations

from kedge.base.tree import Buffer
from kedge.image.formats.squashfs.layout import BLOCK_STORED


def is_hole(block: memoryview, zeros: bytes) -> bool:
    """Whether a block is all zeros; only those that begin and end with zero are looked at closer."""
    return block[0] == 0 and block[-1] == 0 and bytes(block) == zeros[: len(block)]


def choose_stored(block: memoryview, packed: Buffer) -> tuple[int, Buffer]:
    """The size as the image notes it, and the bytes that are stored."""
    if len(packed) >= len(block):
        return len(block) | BLOCK_STORED, block
    return len(packed), packed
