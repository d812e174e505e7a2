# SPDX-License-Identifier: BSD-3-Clause
"""Codecs: streams of layers in every format, blocks of every codec. Needs nothing but Python."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import random
import struct
import subprocess
import sys
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.errors import CorruptImage, InvalidSetting, UnsupportedFormat
from kedge.image.formats.compression.blocks import BlockCodec, XzCodec, codec_of_image, decompress_lzo, open_codec
from kedge.image.formats.compression.streams import StreamCompressor, inflate
from tests.builders.rows import each_row

DATA = random.Random(1).randbytes(70_000) + b"kedge" * 100_000 + bytes(300_000)
PACKERS = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "plain": lambda data: b"plain" + data,
}


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def unpack(data: bytes, size: int = 65536, **options: int) -> bytes:
    return b"".join(inflate(cut(data, size), where="layer 1", **options))


@each_row("kind", PACKERS)
@each_row("size", [1, 7, 4096, 1 << 20])
def test_inflate_reads_every_format_in_chunks_of_any_size(kind: str, size: int) -> None:
    data = DATA[:40_000] if size == 1 else DATA
    expected = b"plain" + data if kind == "plain" else data
    assert unpack(PACKERS[kind](data), size) == expected


@each_row("kind", ["gzip", "zstd", "xz", "bzip2"])
def test_inflate_reads_members_that_follow_each_other(kind: str) -> None:
    pack = PACKERS[kind]
    assert unpack(pack(b"one ") + pack(b"") + pack(b"two"), 5) == b"one two"


@each_row("kind", ["gzip", "xz", "bzip2"])
def test_inflate_accepts_zero_padding(kind: str) -> None:
    assert unpack(PACKERS[kind](b"content") + bytes(1000), 100) == b"content"


def test_inflate_skips_skippable_zstd_frames() -> None:
    frame = PACKERS["zstd"](b"content")
    skippable = struct.pack("<II", 0x184D2A53, 9) + b"any bytes"
    assert unpack(skippable + frame + skippable + frame, 3) == b"contentcontent"


@each_row("kind", ["gzip", "zstd", "xz", "bzip2"])
@each_row("kept", [0.1, 0.5, 0.999])
def test_inflate_names_the_truncated_layer(kind: str, kept: float) -> None:
    packed = PACKERS[kind](DATA)
    with pytest.raises(CorruptImage, match="layer 1") as caught:
        unpack(packed[: int(len(packed) * kept)])
    assert caught.value.hint


@each_row("kind", ["gzip", "zstd", "xz", "bzip2"])
@each_row("garbage", [b"garbage", b"\x1f"])
def test_inflate_refuses_garbage_after_the_end(kind: str, garbage: bytes) -> None:
    with pytest.raises(CorruptImage):
        unpack(PACKERS[kind](DATA) + garbage, 1000)


@each_row("kind", ["gzip", "zstd", "xz", "bzip2"])
def test_inflate_refuses_flipped_bits(kind: str) -> None:
    data = random.Random(3).randbytes(50_000)  # no slack: whatever changes is noticed
    packed = bytearray(
        zstandard.ZstdCompressor(write_checksum=True).compress(data) if kind == "zstd" else PACKERS[kind](data)
    )
    packed[len(packed) // 2] ^= 0x10
    with pytest.raises(CorruptImage):
        unpack(bytes(packed))


@each_row("kind", ["gzip", "zstd", "xz", "bzip2", "plain"])
def test_inflate_bounds_its_pieces_whatever_the_ratio(kind: str) -> None:
    bomb = PACKERS[kind](bytes(20 << 20))
    sizes = [len(piece) for piece in inflate([bomb], where="bomb", piece=100_000)]
    assert max(sizes) <= 100_000
    assert sum(sizes) == (20 << 20) + (5 if kind == "plain" else 0)


def test_inflate_refuses_zstd_windows_beyond_the_limit() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=0)
    engine = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = engine.compress(b"x" * 1000) + engine.flush()
    with pytest.raises(CorruptImage, match="window"):
        unpack(packed)


def test_inflate_of_nothing_is_nothing() -> None:
    assert list(inflate([], where="empty")) == []
    assert list(inflate([b"", b""], where="empty")) in ([], [b"", b""])


def test_inflate_takes_views_that_are_reused() -> None:
    packed = PACKERS["gzip"](DATA)
    buffer = bytearray(1000)

    def reuse() -> io.BytesIO:  # type: ignore[misc]
        for start in range(0, len(packed), 1000):
            part = packed[start : start + 1000]
            buffer[: len(part)] = part
            yield memoryview(buffer)[: len(part)]

    assert b"".join(inflate(reuse(), where="views")) == DATA


def test_stream_compressor_writes_neither_time_nor_name() -> None:
    engine = StreamCompressor("gzip")
    packed = engine.compress(b"content") + engine.flush()
    assert packed[:4] == b"\x1f\x8b\x08\x00"  # no flags: no name, no comment
    assert packed[4:8] == bytes(4)
    assert gzip.decompress(packed) == b"content"


def test_stream_compressor_refuses_unknown_kinds() -> None:
    with pytest.raises(InvalidSetting, match="lzop"):
        StreamCompressor("lzop")


@each_row("spec", ["zstd", "zstd:1", "zstd:19", "gzip", "gzip:9", "lz4", "none"])
def test_block_codec_round_trip(spec: str) -> None:
    codec = open_codec(spec)
    blocks = [DATA[:131072], b"a", DATA[400_000:500_000], bytes(131072)]
    packed = codec.compress_blocks([memoryview(block) for block in blocks])
    assert [codec.decompress_block(bytes(each), 131072) for each in packed] == blocks
    assert [bytes(codec.compress_block(block)) for block in blocks] == [bytes(each) for each in packed]
    assert [bytes(each) for each in codec.compress_blocks(blocks, threads=3)] == [bytes(each) for each in packed]


WITHOUT_THREADS = """
import os, resource, sys
from kedge.image.formats.compression.blocks import open_codec
if os.geteuid() == 0:  # root may start as many as it likes
    os.setgroups([])
    os.setgid(1507)
    os.setuid(1507)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
codec, blocks = open_codec("zstd"), [bytes(8192)] * 40
sys.exit([bytes(each) for each in codec.compress_blocks(blocks, threads=4)] != [codec.compress_block(blocks[0])] * 40)
"""


def test_blocks_are_compressed_where_no_thread_may_be_started() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_THREADS], check=True, timeout=60)


def test_block_codec_zstd_frames_suit_the_kernel() -> None:
    for spec in ("zstd", "zstd:1", "zstd:22"):
        (packed,) = open_codec(spec).compress_blocks([DATA[:131072]])
        frame = zstandard.get_frame_parameters(bytes(packed))
        assert (frame.content_size, frame.has_checksum, frame.dict_id) == (131072, False, 0)
        assert frame.window_size <= 131072


@each_row("spec", ["zstd", "gzip", "lz4"])
def test_block_codec_bounds_what_it_decompresses(spec: str) -> None:
    codec = open_codec(spec)
    (bomb,) = codec.compress_blocks([bytes(1 << 20)])
    with pytest.raises(CorruptImage):
        codec.decompress_block(bytes(bomb), 8192)


def test_block_codec_refuses_a_zstd_frame_that_claims_terabytes() -> None:
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 42).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(CorruptImage, match="claims"):
        open_codec("zstd").decompress_block(frame, 8192)


@each_row(
    ("identifier", "packed"),
    [
        (1, zlib.compress(DATA[:9000])),
        (2, lzma.compress(DATA[:9000], lzma.FORMAT_ALONE)),
        (4, lzma.compress(DATA[:9000], lzma.FORMAT_XZ, check=lzma.CHECK_CRC32)),
        (
            4,
            lzma.compress(DATA[:9000], filters=[{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "dict_size": 8192}]),
        ),
        (6, zstandard.ZstdCompressor(write_content_size=False).compress(DATA[:9000])),
    ],
    ids=["gzip", "lzma", "xz", "xz-x86", "zstd-unsized"],
)
def test_block_codec_of_image_reads_what_others_write(identifier: int, packed: bytes) -> None:
    codec = codec_of_image(identifier)
    assert codec.decompress_block(packed, 9000) == DATA[:9000]
    for limit in (0, 8999):
        with pytest.raises(CorruptImage):
            codec.decompress_block(packed, limit)
    for damaged in (packed[:-20], packed[:30], b"", b"\x00" * 40, bytes(reversed(packed))):
        with contextlib.suppress(CorruptImage):
            assert len(codec.decompress_block(damaged, 9000)) <= 9000


def test_block_codec_of_image_refuses_unknown_numbers() -> None:
    with pytest.raises(UnsupportedFormat, match="7"):
        codec_of_image(7)


@each_row("spec", ["", "zstd:", "zstd:0", "zstd:23", "gzip:10", "lz4:1", "none:1", "brotli", "zstd:٣", "zstd:-1"])
def test_open_codec_refuses_bad_names_and_levels(spec: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        open_codec(spec)
    assert caught.value.hint


def test_open_codec_says_what_can_only_be_read() -> None:
    for spec in ("xz", "lzo", "lzma"):
        codec: BlockCodec = open_codec(spec)
        with pytest.raises(UnsupportedFormat, match=spec):
            codec.compress_blocks([b"data"])
    assert isinstance(open_codec("xz"), XzCodec)


LZO_END = b"\x11\x00\x00"


@each_row(
    ("packed", "expected"),
    [
        (b"\x15" + b"abcd" + LZO_END, b"abcd"),
        (bytes([17 + 4]) + b"abcd" + b"\x6c\x00" + LZO_END, b"abcdabcd"),  # 64-127: length 4 at distance 4
        (bytes([17 + 4]) + b"abcd" + b"\x2a\x0c\x00" + LZO_END, b"abcd" * 4),  # 32-63: length 12, overlapping
        (bytes([17 + 1]) + b"a" + b"\x20\x00\x5f\x00\x00" + LZO_END, b"a" * 384),  # length over a zero byte
        (b"\x00\x01" + b"x" * 19 + LZO_END, b"x" * 19),  # a long run of literals
        (b"\x00\x00\x01" + b"y" * 274 + LZO_END, b"y" * 274),
    ],
)
def test_lzo_instructions(packed: bytes, expected: bytes) -> None:
    assert decompress_lzo(packed, len(expected)) == expected
    with pytest.raises(CorruptImage):
        decompress_lzo(packed, len(expected) - 1)
    for end in range(len(packed)):
        with pytest.raises(CorruptImage):
            decompress_lzo(packed[:end], 10_000)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None, database=None)
def test_lzo_of_any_bytes_ends_within_the_limit(data: bytes) -> None:
    with contextlib.suppress(CorruptImage):
        assert len(decompress_lzo(data, 5000)) <= 5000


@each_row("chunk", [1 << 14, 1 << 20, 1 << 30])
def test_inflate_gzip_with_a_member_for_each_file(chunk: int) -> None:
    files = [random.Random(size).randbytes(size) for size in (0, 1, 3000, 20_000, 2_000_000, 17, 16 << 10, 0)] * 3
    blob = b"".join(gzip.compress(data, 1) for data in files)
    chunks = (blob[start : start + chunk] for start in range(0, len(blob), chunk))
    assert b"".join(inflate(chunks, where="test")) == b"".join(files)


@each_row("threads", [2, 3, 8])
def test_zstd_on_several_threads_gives_the_same_bytes(threads: int) -> None:
    data = bytes(range(256)) * 20_000
    engines = [StreamCompressor("zstd", 1, threads), StreamCompressor("zstd", 1, 2)]
    first, second = (engine.compress(data) + engine.flush() for engine in engines)
    assert first == second
    assert b"".join(inflate(iter([first]), where="test")) == data


def test_zstd_works_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StreamCompressor("zstd", 1, 4)

    class Refusing:
        def compress(self, data: bytes) -> bytes:
            raise zstandard.ZstdError(f"zstd compress error: Allocation error ({len(data)})")

    monkeypatch.setattr(engine, "_engine", Refusing())
    data = b"content" * 1000
    out = engine.compress(data) + engine.compress(data) + engine.flush()
    assert b"".join(inflate(iter([out]), where="test")) == 2 * data
