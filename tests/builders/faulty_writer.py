# SPDX-License-Identifier: BSD-3-Clause
"""Writers that are wrong, for tests of who looks at what they write."""

from __future__ import annotations

from typing import Any

from kedge.formats.squashfs import content_writer, writer


def add_all_as_before(self: Any, piece: memoryview, starts: list[int], sizes: list[int]) -> list[object]:
    """`ContentStore.add_all` with the condition that took a file of a whole block into an empty fragment."""
    tokens: list[object] = []
    for start, size in zip(starts, sizes, strict=True):
        data, used = piece[start : start + size], self._used
        key = size << 32 | content_writer.checksum(data)
        if key not in self._small and used + size <= self._block_size and size:
            self._view[used : used + size] = data
            self._small[key] = place = used << content_writer.OFFSET_SHIFT | len(self.fragments)
            tokens.append(place)
            self._used = used + size
        else:
            tokens.append(self.add(data) if size else None)
    return tokens


def write_as_before() -> None:
    """From now on files of exactly a block go into fragments."""
    content_writer.ContentStore.add_all = add_all_as_before  # type: ignore[method-assign]


def write_unseen() -> None:
    """The same, and nobody looks at the result, as in the version that had the fault."""
    write_as_before()
    writer.SquashWriter._look_back = lambda *_: None  # type: ignore[method-assign]


def mix_contents() -> None:
    """From now on files of one size are taken for equal: an image that is whole, with wrong contents."""
    content_writer.checksum = lambda _: 1  # type: ignore[attr-defined]
    content_writer.ContentStore._is_stored_at = lambda *_: True  # type: ignore[method-assign]
