# SPDX-License-Identifier: BSD-3-Clause
"""gzip on threads: one ordinary stream that others read, the same whatever the threads and the pieces."""

from __future__ import annotations

import gzip
import random
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from kedge.image.formats.compression.gzip_layers import BLOCK, GzipLayerCompressor
from kedge.image.formats.compression.streams import inflate
from tests.builders.rows import each_row
from tests.requirements import require_program


def pack(data: bytes, threads: int, pieces: int = 100_000) -> bytes:
    engine = GzipLayerCompressor(threads)
    parts = [engine.compress(data[place : place + pieces]) for place in range(0, len(data), pieces)]
    return b"".join([*parts, engine.flush()])


def make_data(size: int) -> bytes:
    half = random.Random(size).randbytes(size // 2)
    return (half + b"kedge " * (size // 12 + 1))[:size]


@each_row("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 17])
def test_gzip_layers_are_read_by_others(size: int) -> None:
    data = make_data(size)
    packed = pack(data, 3)
    assert gzip.decompress(packed) == data
    assert b"".join(inflate([packed], where="test")) == data
    engine = zlib.decompressobj(31)
    assert engine.decompress(packed) == data
    assert engine.eof
    assert engine.unused_data == b""  # one member, not several
    argv = [require_program("gzip"), "-dc"]
    assert subprocess.run(argv, input=packed, capture_output=True, check=True).stdout == data


def test_gzip_layers_do_not_depend_on_threads_or_pieces() -> None:
    data = make_data(4 * BLOCK + 5)
    assert len({pack(data, threads, pieces) for threads, pieces in ((1, 7000), (2, 10**9), (5, 300_000))}) == 1


def test_gzip_layers_are_not_larger_than_zlib_makes_them() -> None:
    data = make_data(3 * BLOCK)
    assert len(pack(data, 1)) < len(gzip.compress(data)) * 1.02


def test_gzip_layers_go_on_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    expected = pack(make_data(3 * BLOCK), 1)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert pack(make_data(3 * BLOCK), 4) == expected
