# SPDX-License-Identifier: BSD-3-Clause
"""Streams of layers: decompressing whatever a layer turns out to be, and compressing layers reproducibly.

The kind is sniffed from the first bytes, never taken from a media type, which registries and builders get wrong. Output
comes in pieces of a bounded size, so a bomb costs time in proportion to what the consumer takes, and no memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Protocol

import zstandard
from zlib_ng import zlib_ng

from kedge.base.tree import Buffer
from kedge.errors import CorruptImage, InvalidSetting
from kedge.image.formats.compression.damaged_streams import damaged, garbage, truncated
from kedge.image.formats.compression.gzip_stream import GZIP_MAGIC, GzipStream, cut
from kedge.image.formats.compression.zstd_frames import ZSTD_MAGIC, FrameTracker, is_skippable

_XZ_MAGIC = b"\xfd7zXZ\x00"
_BZIP2_MAGIC = b"BZh"
_MAXIMUM_WINDOW = 128 << 20  # what `zstd -d` allows without --long, and then some; bounds the memory of one stream
XZ_MEMORY_LIMIT = 192 << 20
READ_SIZE = 256 << 10


def inflate(chunks: Iterable[Buffer], *, where: str, piece: int = 1 << 18) -> Iterator[bytes]:
    """The decompressed bytes of a layer in pieces of at most `piece` bytes; `where` names the layer in errors.

    gzip may have several members and zero padding, zstd several frames and skippable ones; xz and bzip2 are taken too;
    anything else passes through unchanged. Truncated or damaged input, or garbage after the end, is `CorruptImage`.
    """
    source = iter(chunks)
    head, waiting = _take_head(source)
    source = itertools.chain(waiting, source)
    if head.startswith(GZIP_MAGIC):
        return _inflate_gzip(source, where, piece)
    if head[:4] == ZSTD_MAGIC or is_skippable(head[:4]):
        return _inflate_zstd(source, where, piece)
    if head.startswith(_XZ_MAGIC):
        return _inflate_members(source, XZ, where, piece)
    if head.startswith(_BZIP2_MAGIC):
        return _inflate_members(source, BZIP2, where, piece)
    return _pass_through(source, piece)


def _take_head(source: Iterator[Buffer]) -> tuple[bytes, list[Buffer]]:
    """The first bytes, and the chunks that hold them; chunks are copied if more than one had to be asked for."""
    head = b""
    waiting: list[Buffer] = []
    for chunk in source:
        head += bytes(chunk[:8])
        if len(head) >= len(_XZ_MAGIC):
            waiting.append(chunk)
            break
        waiting.append(bytes(chunk))
    return head, waiting


def _pass_through(source: Iterator[Buffer], piece: int) -> Iterator[bytes]:
    for chunk in source:
        yield from map(bytes, cut(chunk, piece))


def _inflate_gzip(source: Iterator[Buffer], where: str, piece: int) -> Iterator[bytes]:
    stream = GzipStream(where, piece)
    for part in itertools.chain.from_iterable(cut(chunk, stream.part) for chunk in source):
        yield from stream.feed(part)
    stream.finish()


class _MemberEngine(Protocol):
    """What `lzma` and `bz2` decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _MemberFormat:
    """A format of concatenated members for which the standard library has a decompressor."""

    def __init__(self, name: str, magic: bytes) -> None:
        self.name = name
        self.magic = magic

    def open(self) -> _MemberEngine:
        """A decompressor for one member."""
        if self.name == "bzip2":
            import bz2  # late: hardly any layer needs it

            return bz2.BZ2Decompressor()
        import lzma  # late: hardly any layer needs it

        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_LIMIT)

    def inflate_member(
        self, data: bytes, source: Iterator[Buffer], where: str, piece: int
    ) -> Generator[bytes, None, bytes]:
        """Yield one member's bytes, from `data` and what follows; returns what is left of the last chunk."""
        engine = self.open()
        while True:
            try:
                output = engine.decompress(data, piece)
            except (OSError, EOFError, ValueError, _lzma_error()) as problem:
                raise damaged(where, self.name, problem) from problem
            if output:
                yield output
            if engine.eof:
                return engine.unused_data
            data = b""
            if engine.needs_input:
                chunk = next(source, None)
                if chunk is None:
                    raise truncated(where, self.name)
                data = bytes(chunk)


XZ = _MemberFormat("xz", _XZ_MAGIC)
BZIP2 = _MemberFormat("bzip2", _BZIP2_MAGIC)


def _inflate_members(source: Iterator[Buffer], kind: _MemberFormat, where: str, piece: int) -> Iterator[bytes]:
    unread = b""
    for chunk in source:
        unread = (unread + bytes(chunk)).lstrip(b"\0")
        while len(unread) >= len(kind.magic):
            if not unread.startswith(kind.magic):
                raise garbage(where, kind.name)
            unread = yield from kind.inflate_member(unread, source, where, piece)
            unread = unread.lstrip(b"\0")
    if unread:
        raise garbage(where, kind.name)


def _lzma_error() -> type[Exception]:
    import lzma  # late: hardly any layer needs it

    return lzma.LZMAError


class _ChunkReader:
    """The chunks as the file object that the zstd library reads from; each byte passes the frame tracker."""

    def __init__(self, source: Iterator[Buffer], tracker: FrameTracker) -> None:
        self._source = source
        self._tracker = tracker
        self._view = memoryview(b"")

    def read(self, size: int) -> bytes:
        while not self._view:
            chunk = next(self._source, None)
            if chunk is None:
                return b""
            self._view = memoryview(chunk)
        data = bytes(self._view[:size])
        self._view = self._view[size:]
        return self._tracker.feed(data)


def _inflate_zstd(source: Iterator[Buffer], where: str, piece: int) -> Iterator[bytes]:
    # The library says neither that a stream ends within a frame nor what follows the last one: the tracker does.
    tracker = FrameTracker(_MAXIMUM_WINDOW)
    engine = zstandard.ZstdDecompressor(max_window_size=_MAXIMUM_WINDOW)
    reader: Any = _ChunkReader(source, tracker)
    with engine.stream_reader(reader, read_size=READ_SIZE, read_across_frames=True, closefd=False) as stream:
        while True:
            try:
                output = stream.read(piece)
            except (zstandard.ZstdError, CorruptImage) as problem:
                raise damaged(where, "zstd", problem) from problem
            if not output:
                break
            yield output
    if not tracker.is_complete:
        raise truncated(where, "zstd")


class StreamCompressor:
    """Compresses one layer: "gzip", "zstd" or "none"; equal input gives equal bytes, no time and no name inside.

    With several `threads` zstd works beside the caller. How many they are changes no byte, but one is not several.
    """

    def __init__(self, kind: str, level: int | None = None, threads: int = 1) -> None:
        self._engine: Any
        self._alone: Any = None  # what to use instead where no thread can be started
        if kind == "gzip":
            self._engine = zlib_ng.compressobj(6 if level is None else level, zlib_ng.DEFLATED, 31)
        elif kind == "zstd":
            level = 3 if level is None else level
            self._engine = zstandard.ZstdCompressor(level=level).compressobj()
            if threads > 1:
                self._alone = self._engine
                self._engine = zstandard.ZstdCompressor(level=level, threads=threads).compressobj()
        elif kind == "none":
            self._engine = None
        else:
            raise InvalidSetting(f"unknown layer compression {kind!r}", hint="choose gzip, zstd or none")

    def compress(self, data: Buffer) -> bytes:
        """Take bytes; give back what is ready, perhaps nothing."""
        if self._alone is not None:
            alone, self._alone = self._alone, None
            try:
                return bytes(self._engine.compress(data))
            except zstandard.ZstdError:  # RLIMIT_NPROC: nothing was taken yet
                self._engine = alone
        return bytes(data) if self._engine is None else self._engine.compress(data)

    def flush(self) -> bytes:
        """End the stream and give its last bytes."""
        return b"" if self._engine is None else self._engine.flush()
