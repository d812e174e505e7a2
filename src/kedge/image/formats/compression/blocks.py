# SPDX-License-Identifier: BSD-3-Clause
"""Block codecs of SquashFS images: independent blocks, each compressed and decompressed on its own.

Compression takes a batch of blocks per call, so that a worker thread needs the interpreter lock once per megabytes and
not once per block. Decompression is bounded by the caller's limit whatever the data claims.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import zstandard
from zlib_ng import zlib_ng

from kedge.base.tree import Buffer
from kedge.errors import CorruptImage, InvalidSetting, UnsupportedFormat

checksum = zlib_ng.crc32  # fast and weak: finds candidates for equality, proves nothing
adler32 = zlib_ng.adler32  # its lower half is the sum of the bytes

XZ_MEMORY_LIMIT = 96 << 20  # a SquashFS dictionary is at most one block (1 MiB); presets of xz -9 need 65 MiB


class BlockCodec:
    """One codec with its level. `name` and `identifier` are SquashFS's; `options` is its compressor options block."""

    name: ClassVar[str] = "none"
    identifier: ClassVar[int] = (
        1  # images whose blocks are all stored still name a compressor: gzip, as mksquashfs does
    )
    stores_all: ClassVar[bool] = False

    def __init__(self, level: int = 0) -> None:
        self.level = level
        self.options = b""

    def compress_blocks(self, blocks: Sequence[Buffer], threads: int = 1) -> Sequence[Any]:  # noqa: ARG002 - for zstd
        """Compress each block; the results are buffers, in order. Safe to call from several threads at once.

        `threads` may be used, whose number changes no byte.
        """
        return [self.compress_block(block) for block in blocks]

    def compress_block(self, block: Buffer) -> Buffer:  # noqa: ARG002 - the protocol's
        """Compress one block. To be called by one thread at a time."""
        raise UnsupportedFormat(
            f"SquashFS images can be read but not written with {self.name}", hint="choose zstd, gzip, lz4 or none"
        )

    def decompress_block(self, data: Buffer, limit: int) -> bytes:
        """Decompress one block of at most `limit` bytes; more, or damaged data, is `CorruptImage`."""
        try:
            result = self._decompress(data, limit)
        except (CorruptImage, MemoryError):
            raise
        except Exception as problem:  # every codec library has error classes of its own
            raise CorruptImage(f"{self.name} data is damaged: {problem}") from problem
        if len(result) > limit:
            raise CorruptImage(f"{self.name} data expands to more than {limit} bytes")
        return result

    def measure_block(self, head: Buffer, limit: int) -> int | None:  # noqa: ARG002 - for zstd
        """How many bytes a block gives, by the first 18 of those stored; None where the codec does not say it there."""
        return None

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        raise NotImplementedError


class _StoredCodec(BlockCodec):
    """No compression at all."""

    stores_all = True

    def compress_blocks(self, blocks: Sequence[Buffer], threads: int = 1) -> Sequence[Buffer]:  # noqa: ARG002
        """The blocks themselves."""
        return blocks

    def compress_block(self, block: Buffer) -> Buffer:
        """The block itself."""
        return block

    def _decompress(self, data: Buffer, limit: int) -> bytes:  # noqa: ARG002 - the protocol's
        return bytes(data)


class _ZstdCodec(BlockCodec):
    """Zstandard; level 0 is `_DEFAULT_ZSTD`, chosen for blocks of an image."""

    name = "zstd"
    identifier = 6

    def __init__(self, level: int = 0) -> None:
        super().__init__(level)
        self.options = struct.pack("<I", level or 3)
        self._local = threading.local()
        self._single = self._new_compressor()

    def _new_compressor(self) -> zstandard.ZstdCompressor:
        if self.level:
            return zstandard.ZstdCompressor(level=self.level, write_content_size=True, write_checksum=False)
        return zstandard.ZstdCompressor(compression_params=_DEFAULT_ZSTD)

    def compress_blocks(self, blocks: Sequence[Buffer], threads: int = 1) -> Sequence[Any]:
        """Compress the whole batch in one call that holds no interpreter lock."""
        compressor = self._new_compressor()  # cheap, and two threads may not share one
        if not hasattr(compressor, "multi_compress_to_buffer"):  # the cffi variant of the package
            return [compressor.compress(block) for block in blocks]
        if not blocks:
            return []
        try:
            packed = compressor.multi_compress_to_buffer(list(blocks), threads=max(threads, 1))
        except (zstandard.ZstdError, MemoryError):
            if threads <= 1:
                raise
            packed = compressor.multi_compress_to_buffer(list(blocks), threads=1)  # no more threads may be had
        return [packed[index] for index in range(len(packed))]

    def compress_block(self, block: Buffer) -> bytes:
        """Compress one block."""
        return self._single.compress(block)

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        size = zstandard.frame_content_size(data)
        if size > limit:  # would be allocated before a byte is decompressed
            raise CorruptImage(f"zstd data claims to expand to {size} bytes where {limit} are the limit")
        if size == 0:
            return b""
        decompressor = getattr(self._local, "decompressor", None)
        if decompressor is None:
            decompressor = self._local.decompressor = zstandard.ZstdDecompressor()
        result: bytes = decompressor.decompress(data, max_output_size=limit)
        return result

    def measure_block(self, head: Buffer, limit: int) -> int | None:
        """The size that the frame's head has, if any."""
        try:
            size = zstandard.frame_content_size(head)
        except zstandard.ZstdError as problem:
            raise CorruptImage(f"zstd data is damaged: {problem}") from problem
        if size > limit:
            raise CorruptImage(f"zstd data claims to expand to {size} bytes where {limit} are the limit")
        return size if size >= 0 else None


class _GzipCodec(BlockCodec):
    """Deflate in a zlib frame."""

    name = "gzip"
    identifier = 1

    def __init__(self, level: int = 0) -> None:
        super().__init__(level or 6)
        if self.level != 9:  # 9 is what readers assume without an options block
            self.options = struct.pack("<IHH", self.level, 15, 0)

    def compress_block(self, block: Buffer) -> bytes:
        """Compress one block; also safe from several threads."""
        result: bytes = zlib_ng.compress(block, self.level)
        return result

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        engine = zlib_ng.decompressobj()
        result: bytes = engine.decompress(data, limit + 1)
        if not engine.eof and len(result) <= limit:
            raise CorruptImage("gzip data is cut short")
        return result


class _Lz4Codec(BlockCodec):
    """LZ4 blocks; SquashFS requires their options block."""

    name = "lz4"
    identifier = 5

    def __init__(self, level: int = 0) -> None:
        super().__init__(level)
        self.options = struct.pack("<II", 1, 0)  # version 1 ("legacy" block format), no high compression

    def compress_block(self, block: Buffer) -> bytes:
        """Compress one block; also safe from several threads."""
        import lz4.block  # late: most images never need it

        result: bytes = lz4.block.compress(block, store_size=False)
        return result

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        import lz4.block  # late: most images never need it

        result: bytes = lz4.block.decompress(data, uncompressed_size=limit)
        return result


class XzCodec(BlockCodec):
    """XZ, read only; the branch filters of the options block are named again in each block's own header."""

    name = "xz"
    identifier = 4

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        import lzma  # late: most images never need it

        engine = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_LIMIT)
        result = engine.decompress(data, limit + 1)
        if not engine.eof and len(result) <= limit:
            raise CorruptImage("xz data is cut short")
        return result


class _LzmaCodec(BlockCodec):
    """The lzma_alone format of SquashFS images from before xz, read only."""

    name = "lzma"
    identifier = 2

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        import lzma  # late: most images never need it

        # The memory limit bounds the dictionary; an end marker is optional in this format, so `eof` proves nothing.
        return lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=XZ_MEMORY_LIMIT).decompress(data, limit + 1)


class _LzoCodec(BlockCodec):
    """LZO1X, read only, with kedge's own decoder: slow, but such images are rare and no wheel is kept."""

    name = "lzo"
    identifier = 3

    def _decompress(self, data: Buffer, limit: int) -> bytes:
        return decompress_lzo(data, limit)


# Measured on 128 KiB blocks (arm64, zstd 1.5.7): size relative to zlib -9, and MB/s of one core.
#                    this         level 3      level 2
#   shared objects   1.025, 224   1.029, 182   1.049, 254
#   programs         1.043, 178   1.051, 145   1.065, 198
#   byte code        0.923, 239   0.926, 213   0.949, 268
#   Python source    1.095, 209   1.089, 197   1.148, 244
# A 1.9 GB image of packages becomes 553.6 MB (level 3: 556.0, mksquashfs gzip: 534.9) for 1.4 s less of 16 s of CPU.
# Small tables stay in the core's cache; matches of four bytes make up for them in binaries.
_DEFAULT_ZSTD = zstandard.ZstdCompressionParameters(
    window_log=17,
    hash_log=14,
    chain_log=12,
    search_log=1,
    min_match=4,
    target_length=0,
    strategy=zstandard.STRATEGY_DFAST,
    write_content_size=1,  # the kernel needs no more than the content as window then
    write_checksum=0,  # one would find flipped bits, but Linux 6.18 fails to read blocks that end in one (tried)
)
KINDS: tuple[type[BlockCodec], ...] = (_GzipCodec, _LzmaCodec, _LzoCodec, XzCodec, _Lz4Codec, _ZstdCodec)
LEVELS = {"zstd": 22, "gzip": 9}  # the highest of those that have levels


def open_codec(spec: str) -> BlockCodec:
    """The codec that `--compress` names: "zstd[:1-22]", "gzip[:1-9]", "lz4", "none"; "xz", "lzo", "lzma" only read."""
    name, colon, text = spec.partition(":")
    if name == "none" and not colon:
        return _StoredCodec()
    kinds = {kind.name: kind for kind in KINDS}
    if name not in kinds:
        raise InvalidSetting(f"unknown compression {spec!r}", hint="choose zstd[:1-22], gzip[:1-9], lz4 or none")
    if not colon:
        return kinds[name]()
    highest = LEVELS.get(name, 0)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= highest):
        hint = f"{name} takes a level from 1 to {highest}" if highest else f"{name} takes no level"
        raise InvalidSetting(f"compression {spec!r} has no usable level", hint=hint)
    return kinds[name](int(text))


def codec_of_image(identifier: int) -> BlockCodec:
    """The codec with that number in a SquashFS superblock."""
    for kind in KINDS:
        if kind.identifier == identifier:
            return kind()
    raise UnsupportedFormat(
        f"SquashFS compressor {identifier} is unknown",
        context={"field": "superblock.compressor"},
        hint="kedge knows 1 to 6: gzip, lzma, lzo, xz, lz4, zstd",
    )


# A decoder for LZO1X data, the compressor of some old SquashFS images. Output and every copy are bounded.
#
# The stream is a series of instructions, each a copy from earlier output followed by up to three literal bytes; what
# the bytes 0-15 mean depends on how many literals came before. Described in the kernel's Documentation/staging/lzo.rst.


class _Decoder:
    """Reads one LZO1X stream; `position` is where the next instruction stands."""

    def __init__(self, data: bytes, limit: int) -> None:
        self.data = data
        self.limit = limit
        self.position = 0
        self.output = bytearray()

    def byte(self) -> int:
        position = self.position
        if position >= len(self.data):
            raise CorruptImage("lzo data is cut short")
        self.position = position + 1
        return self.data[position]

    def length(self, base: int) -> int:
        """A length that continues over zero bytes, 255 each."""
        start = self.position
        end = start
        while end < len(self.data) and self.data[end] == 0:
            end += 1
        self.position = end
        total = base + 255 * (end - start) + self.byte()
        if total > self.limit + 16:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")
        return total

    def literals(self, count: int) -> None:
        end = self.position + count
        if end > len(self.data):
            raise CorruptImage("lzo data is cut short")
        self.output += self.data[self.position : end]
        self.position = end
        if len(self.output) > self.limit:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")

    def copy(self, distance: int, count: int) -> None:
        output = self.output
        start = len(output) - distance
        if start < 0:
            raise CorruptImage("lzo data refers to bytes before its start")
        if len(output) + count > self.limit:
            raise CorruptImage(f"lzo data expands to more than {self.limit} bytes")
        if distance >= count:
            output += output[start : start + count]
        else:  # the copy overlaps what it writes: a repeating pattern
            output += (bytes(output[start:]) * (count // distance + 1))[:count]

    def short_match(self, code: int, state: int) -> tuple[int, int, int]:
        """Instructions 0-15 after literals: distance, length and how many literals follow."""
        high = self.byte()
        if state == 4:
            return 2049 + (code >> 2) + (high << 2), 3, code & 3
        return 1 + (code >> 2) + (high << 2), 2, code & 3

    def match(self, code: int) -> tuple[int, int, int]:
        """Instructions 16-255; distance 0 is the end of the stream."""
        if code >= 64:
            high = self.byte()
            return 1 + ((code >> 2) & 7) + (high << 3), (code >> 5) + 1, code & 3
        if code >= 32:
            count = 2 + (code & 31 or self.length(31))
            low = self.byte()
            tail = low | self.byte() << 8
            return 1 + (tail >> 2), count, tail & 3
        count = 2 + (code & 7 or self.length(7))
        low = self.byte()
        tail = low | self.byte() << 8
        distance = ((code & 8) << 11) + (tail >> 2)
        return (distance + 16384 if distance else 0), count, tail & 3

    def run(self) -> bytes:
        state = 0  # literals that came just before: 0-3, or 4 for a long run
        if self.data[:1] > b"\x11":
            count = self.byte() - 17
            self.literals(count)
            state = min(count, 4)
        while True:
            code = self.byte()
            if code < 16 and state == 0:
                self.literals(3 + (code or self.length(15)))
                state = 4
                continue
            distance, count, state = self.short_match(code, state) if code < 16 else self.match(code)
            if distance == 0:
                return bytes(self.output)
            self.copy(distance, count)
            self.literals(state)


def decompress_lzo(data: Buffer, limit: int) -> bytes:
    """The decompressed block; `CorruptImage` if it is damaged or would be larger than `limit`."""
    return _Decoder(bytes(data), limit).run()
