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


# What is said of a compressed stream that is damaged, cut short, or followed by something else.

_REFETCH = "fetch it again; if it is still damaged, it was damaged when it was pushed"


def damaged(where: str, kind: str, problem: Exception) -> CorruptImage:
    """The codec refuses the data."""
    return CorruptImage(f"{where}: the {kind} data is damaged: {problem}", context={"layer": where}, hint=_REFETCH)


def truncated(where: str, kind: str) -> CorruptImage:
    """The data ends before the stream does."""
    return CorruptImage(f"{where}: the {kind} data ends too early", context={"layer": where}, hint=_REFETCH)


def garbage(where: str, kind: str) -> CorruptImage:
    """What follows the stream is no other one."""
    return CorruptImage(f"{where}: garbage follows the {kind} data", context={"layer": where}, hint=_REFETCH)


# Inflates gzip as it comes: members, zeros between them, and what must not stand there.

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


# Follows the frames and blocks of a zstd stream without decompressing it (RFC 8878, section 3.1).
#
# The library decompresses; this says whether the stream ends where a frame ends, that nothing but frames is in it, and
# refuses windows that would need more memory than we give.

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_skippable(magic: bytes) -> bool:
    """Whether these four bytes begin a skippable frame."""
    return len(magic) == 4 and magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18"


class FrameTracker:
    """Is fed all bytes of a stream; raises `CorruptImage` for what is no zstd stream."""

    def __init__(self, maximum_window: int) -> None:
        self._maximum_window = maximum_window
        self._steps = self._follow()
        self._need = next(self._steps)  # positive: bytes to hand over; negative: bytes to skip
        self._held = bytearray()
        self._inside = False

    @property
    def is_complete(self) -> bool:
        """Whether the stream may end here."""
        return not self._inside and not self._held

    def feed(self, data: bytes) -> bytes:
        """Look at the next bytes and return them."""
        position, end = 0, len(data)
        while position < end:
            if self._need < 0:
                step = min(-self._need, end - position)
                position += step
                self._need += step
                if self._need == 0:
                    self._need = self._steps.send(b"")
                continue
            step = min(self._need - len(self._held), end - position)
            self._held += data[position : position + step]
            position += step
            if len(self._held) == self._need:
                taken = bytes(self._held)
                self._held.clear()
                self._need = self._steps.send(taken)
        return data

    def _follow(self) -> Generator[int, bytes, None]:
        while True:
            self._inside = False
            magic = yield 4
            self._inside = True
            if is_skippable(magic):
                size = int.from_bytes((yield 4), "little")
                if size:
                    yield -size
            elif magic == ZSTD_MAGIC:
                yield from self._follow_frame()
            else:
                raise CorruptImage("data that is not a zstd frame follows")

    def _follow_frame(self) -> Generator[int, bytes, None]:
        descriptor = (yield 1)[0]
        is_single = bool(descriptor & 0x20)
        sizes = (1 if is_single else 0, 2, 4, 8)
        header_size = (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3] + sizes[descriptor >> 6]
        header = (yield header_size) if header_size else b""
        if not is_single:
            base = 1 << (10 + (header[0] >> 3))
            window = base + (base >> 3) * (header[0] & 7)
            if window > self._maximum_window:
                raise CorruptImage(f"it needs a window of {window} bytes, the limit is {self._maximum_window}")
        last = False
        while not last:
            word = int.from_bytes((yield 3), "little")
            last = bool(word & 1)
            size = 1 if (word >> 1) & 3 == 1 else word >> 3
            if size:
                yield -size
        if descriptor & 0x04:
            yield 4
