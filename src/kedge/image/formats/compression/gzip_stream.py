# SPDX-License-Identifier: BSD-3-Clause
"""Inflates gzip as it comes: members, zeros between them, and what must not stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zlib_ng import zlib_ng

from kedge.base.tree import Buffer
from kedge.image.formats.compression.damaged_streams import damaged, garbage, truncated

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_ERROR: Any = zlib_ng.error  # an instance, if one believes the stubs
_FIRST_MEMBER = 2 << 20  # bytes of gzip given to the engine at once, at most
_LATER_MEMBERS = 16 << 10  # what follows a member is copied: little, where a layer has one for each file (eStargz)


class GzipStream:
    """Inflates what it is fed, in pieces of at most `piece` bytes; members and zeros between them as they come."""

    def __init__(self, where: str, piece: int) -> None:
        # The bytes to feed at once: about what becomes one piece, because the engine copies what it leaves of them
        self.part = min(_FIRST_MEMBER, max(piece // 2, _LATER_MEMBERS))
        self._where = where
        self._piece = piece
        self._engine: Any = None  # between members
        self._unread = b""

    def feed(self, part: Buffer) -> Iterator[bytes]:
        """Inflate the next bytes of the stream."""
        data = self._unread + bytes(part) if self._unread else part
        self._unread = b""
        while len(data):
            if self._engine is None:
                data = bytes(data).lstrip(b"\0")  # padding after a member
                if len(data) < len(GZIP_MAGIC):
                    self._unread = data
                    return
                if not data.startswith(GZIP_MAGIC):
                    raise garbage(self._where, "gzip")
                self._engine = zlib_ng.decompressobj(31)
            engine = self._engine
            try:
                output = engine.decompress(data, self._piece)
            except _GZIP_ERROR as problem:
                raise damaged(self._where, "gzip", problem) from problem
            if output:
                yield output
            if engine.eof:
                data, self._engine, self.part = engine.unused_data, None, _LATER_MEMBERS
            else:
                data = engine.unconsumed_tail

    def finish(self) -> None:
        """Raise if the stream may not end here."""
        if self._engine is not None:
            raise truncated(self._where, "gzip")
        if self._unread:
            raise garbage(self._where, "gzip")


def cut(chunk: Buffer, size: int) -> Iterator[Buffer]:
    """The chunk in parts of at most `size` bytes, nothing copied."""
    if len(chunk) <= size:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(view), size):
        yield view[start : start + size]
