# SPDX-License-Identifier: BSD-3-Clause
"""Writers that are wrong, for tests of who looks at what they write."""

from __future__ import annotations

from typing import Any

from kedge.base.tree import Buffer
from kedge.image.formats.squashfs import content_writer, writer

_add = content_writer.ContentStore.add


def add_as_before(self: Any, data: Buffer) -> object:
    """`ContentStore.add` that takes a file of a whole block into an empty fragment, as an earlier version did."""
    size = len(data)
    if size == self._block_size and not self._used:
        return self._add_small(data, size << 32 | content_writer.checksum(data))
    return _add(self, data)


def write_as_before() -> None:
    """From now on files of exactly a block go into fragments."""
    content_writer.ContentStore.add = add_as_before  # type: ignore[method-assign]


def write_unseen() -> None:
    """The same, and nobody looks at the result, as in the version that had the fault."""
    write_as_before()
    writer.SquashWriter._look_back = lambda *_: None  # type: ignore[method-assign]


def mix_contents() -> None:
    """From now on files of one size are taken for equal: an image that is whole, with wrong contents."""
    content_writer.checksum = lambda _: 1  # type: ignore[attr-defined]
    content_writer.ContentStore._is_stored_at = lambda *_: True  # type: ignore[method-assign]
