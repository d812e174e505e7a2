# SPDX-License-Identifier: BSD-3-Clause
"""Segments of a gzip stream: stretches that can be inflated on their own, because the state at their beginning is kept.

gzip can be inflated from its beginning only. Whoever has inflated a stretch once, without keeping the bytes, can keep
the engine's state every few megabytes (some 50 kB each); then threads inflate the stretches side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from zlib_ng import zlib_ng

from kedge.errors import CorruptImage
from kedge.formats.compression.damaged_streams import damaged, garbage, truncated
from kedge.frozen import frozen
from kedge.model.tree import Buffer

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_ERROR: Any = zlib_ng.error  # an instance, if one believes the stubs
_FIRST_MEMBER = 2 << 20  # bytes of gzip given to the engine at once, at most
_LATER_MEMBERS = 16 << 10  # what follows a member is copied: little, where a layer has one for each file (eStargz)
_LENGTH = 4 << 20  # compressed bytes of a segment
_MANY = 256  # segments of that length; as many of twice the length follow, and so on: the states take memory


class GzipStream:
    """Inflates what it is fed, in pieces of at most `piece` bytes; members and zeros between them as they come."""

    def __init__(self, where: str, piece: int, engine: Any = None) -> None:
        # The bytes to feed at once: about what becomes one piece, because the engine copies what it leaves of them
        self.part = min(_FIRST_MEMBER, max(piece // 2, _LATER_MEMBERS))
        self._where = where
        self._piece = piece
        self._engine = engine  # None between members
        self._unread = b""

    @property
    def is_between_parts(self) -> bool:
        """Whether all that was fed is in the engine's state."""
        return not self._unread

    def copy_engine(self) -> Any:
        """The state of the engine; None between members."""
        return None if self._engine is None else self._engine.copy()

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


@frozen
class GzipSegment:
    """A stretch of a stream, known by its compressed bytes; to be inflated once."""

    offset: int
    length: int
    digest: bytes  # sha256 of the compressed bytes: they are read a second time
    engine: Any


class SegmentScan:
    """Notes segments while a stream is inflated. As long as it `is_scanning`, the bytes are not needed by anybody.

    `is_wanted` is asked between two parts of the input; `begin` is told when scanning begins; `add` gets the segments,
    and None after the last. It scans once: when segments are not wanted any more, the rest is for the reader.
    """

    def __init__(
        self, is_wanted: Callable[[], bool], begin: Callable[[], None], add: Callable[[GzipSegment | None], None]
    ) -> None:
        self.is_scanning = False
        self._is_wanted = is_wanted
        self._begin = begin
        self._add = add
        self._count = 0
        self._position = 0
        self._is_over = False
        self._offset = 0
        self._engine: Any = None
        self._hash = hashlib.sha256()

    def meet(self, stream: GzipStream, part: Buffer) -> None:
        """This part is fed next."""
        if stream.is_between_parts and not self._is_over:
            is_wanted = self._is_wanted()
            if self.is_scanning and not is_wanted:
                self.end()
            elif self.is_scanning and self._position - self._offset >= _LENGTH << self._count // _MANY:
                self._close_segment()
                self._open_segment(stream)
            elif is_wanted and not self.is_scanning:
                self.is_scanning = True
                self._begin()
                self._open_segment(stream)
        self._position += len(part)
        if self.is_scanning:
            self._hash.update(part)

    def end(self) -> None:
        """Nothing is skipped any more; may be called twice."""
        if self.is_scanning:
            self.is_scanning = False
            self._close_segment()
            self._add(None)
        self._is_over = True

    def _open_segment(self, stream: GzipStream) -> None:
        self._offset, self._engine, self._hash = self._position, stream.copy_engine(), hashlib.sha256()

    def _close_segment(self) -> None:
        length = self._position - self._offset
        if length:
            self._add(GzipSegment(self._offset, length, self._hash.digest(), self._engine))
            self._count += 1


def inflate_segment(segment: GzipSegment, chunks: Iterable[Buffer], *, where: str, piece: int) -> Iterator[bytes]:
    """The bytes of a segment; `chunks` begin at its offset. CorruptImage if they are not those that were scanned."""
    stream, hasher, left = GzipStream(where, piece, segment.engine), hashlib.sha256(), segment.length
    for chunk in chunks:
        for part in cut(chunk[:left], stream.part):
            hasher.update(part)
            left -= len(part)
            yield from stream.feed(part)
        if not left:
            break
    if left or hasher.digest() != segment.digest:
        raise CorruptImage(f"{where} changed between two reads", context={"layer": where})


def cut(chunk: Buffer, size: int) -> Iterator[Buffer]:
    """The chunk in parts of at most `size` bytes, nothing copied."""
    if len(chunk) <= size:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(view), size):
        yield view[start : start + size]
