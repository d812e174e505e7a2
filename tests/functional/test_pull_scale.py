# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pull` of very many files and of very large ones: it works, in bounded memory and time.

Needs zstandard, and for a look at the results root, who may mount them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from kedge.image.formats.sif.reader import SifReader
from tests.builders import layers as build
from tests.builders.images import make_config, noise
from tests.fakes.registry import FakeRegistry
from tests.programs import read_program
from tests.requirements import require_program, require_root

pytestmark = pytest.mark.slow

PEAK = 400 << 20
GIBIBYTE = 1 << 30
MEASURE = read_program("measure_peak_memory")


def pull_measured(reference: str, folder: Path, *words: str) -> tuple[int, float]:
    """Pull to x.sif in the directory; returns the peak RSS in bytes and the seconds."""
    argv = [sys.executable, "-c", MEASURE, sys.executable, "-m", "kedge", "-q", "pull", *words, "x.sif", reference]
    environment = {**os.environ, "KEDGE_CACHEDIR": str(folder / "cache")}
    begin = time.monotonic()
    done = subprocess.run(argv, cwd=folder, env=environment, timeout=280, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) << 10, time.monotonic() - begin


@contextlib.contextmanager
def mounted(sif: Path) -> Iterator[Path]:
    require_root()
    with sif.open("rb") as file:
        offset = SifReader(file).root_partition().offset
    top = sif.parent / "mounted"
    top.mkdir()
    subprocess.run(["mount", "-t", "squashfs", "-o", f"ro,loop,offset={offset}", sif, top], check=True)
    try:
        yield top
    finally:
        subprocess.run(["umount", top], check=True)
        top.rmdir()


def pack_many_files(count: int) -> bytes:
    """A gzip'd layer of `count` small files in folders of a thousand, one of which has a third of them."""
    packer = zlib.compressobj(1, wbits=31)
    pieces = [packer.compress(build.folder("many")), packer.compress(build.folder("crowd"))]
    for number in range(count):
        if number % 3 == 0:
            name = b"crowd/file-%06d" % number
        else:
            if number % 1000 == 1:
                pieces.append(packer.compress(build.folder(b"many/%03d" % (number // 1000))))
            name = b"many/%03d/file-%06d" % (number // 1000, number)
        pieces.append(packer.compress(build.file(name, b"content of %d\n" % number)))
    pieces += [packer.compress(build.END), packer.flush()]
    return b"".join(pieces)


@pytest.mark.root
@pytest.mark.parametrize(("files", "most"), [(60_000, 160 << 20), pytest.param(300_000, PEAK, marks=pytest.mark.long)])
def test_pull_of_many_files_stays_small(tmp_path: Path, files: int, most: int) -> None:
    require_root()
    with FakeRegistry() as registry:
        registry.add_image("team/many", "1", [pack_many_files(files)], make_config([]))
        peak, seconds = pull_measured(f"docker://{registry.host}/team/many:1", tmp_path)
    assert peak < most
    assert seconds < 120
    with mounted(tmp_path / "x.sif") as top:
        assert sum(1 for _ in os.scandir(top / "crowd")) == files // 3
        assert sum(len(names) for _, _, names in os.walk(top / "many")) == files - files // 3
        for number in (0, 3, 1, files - 1, files // 2 + 1, files - 3):
            folder = "crowd" if number % 3 == 0 else f"many/{number // 1000:03}"
            assert (top / folder / f"file-{number:06}").read_text() == f"content of {number}\n"


SPRINKLES = {  # place: what stands there, in a file that is zeros otherwise
    0: b"begin",
    131_071: b"over the border of a block",
    GIBIBYTE + 5: noise(300_000, "first"),
    4 * GIBIBYTE - 3: b"over the border of four gibibytes",
    4 * GIBIBYTE + 131_072 * 5: noise(131_072, "whole block"),
    5 * GIBIBYTE + 12_345: b"the end",
}
LENGTH = 5 * GIBIBYTE + 12_345 + len(b"the end")


def pack_large_file() -> bytes:
    """A zstd layer with one file of five gibibytes; its long runs of zeros are one frame, repeated."""
    compressor = zstandard.ZstdCompressor(level=1)
    unit = 64 << 20
    zeros = compressor.compress(bytes(unit))
    head = build.header(b"large", size=0, fields={124: b"\x80" + LENGTH.to_bytes(11, "big")})
    pieces = [compressor.compress(head)]
    position = 0
    for place, data in SPRINKLES.items():
        whole, rest = divmod(place - position, unit)
        pieces += [zeros] * whole
        pieces.append(compressor.compress(bytes(rest) + data))
        position = place + len(data)
    assert position == LENGTH
    pieces.append(compressor.compress(bytes(-LENGTH % 512) + build.file("after", b"still in step") + build.END))
    return b"".join(pieces)


def pack_sparse_file(folder: Path) -> bytes:
    """The same file as GNU tar stores it when it looks for holes."""
    with (folder / "large").open("wb") as file:
        for place, data in SPRINKLES.items():
            file.seek(place)
            file.write(data)
    (folder / "after").write_bytes(b"still in step")
    argv = [require_program("tar"), "-C", str(folder), "--format=pax", "--sparse", "-cf", "-", "large", "after"]
    tar = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    assert len(tar) < 2 << 20
    return build.compress(tar)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["plain", "sparse"])
def test_pull_of_a_file_of_five_gibibytes(tmp_path: Path, kind: str) -> None:
    require_root()
    blob = pack_large_file() if kind == "plain" else pack_sparse_file(tmp_path)
    with FakeRegistry() as registry:
        registry.add_image("team/large", "1", [blob], make_config([]))
        peak, seconds = pull_measured(f"docker://{registry.host}/team/large:1", tmp_path)
    assert peak < PEAK
    assert seconds < 90
    assert (tmp_path / "x.sif").stat().st_size < 4 << 20, "zeros take no room"
    with mounted(tmp_path / "x.sif") as top:
        assert (top / "after").read_bytes() == b"still in step"
        assert (top / "large").stat().st_size == LENGTH
        with (top / "large").open("rb", 0) as file:
            for place, data in SPRINKLES.items():
                start = max(0, place - 1000)
                file.seek(start)
                wanted = bytes(place - start) + data + bytes(1000)
                assert file.read(len(wanted)) == wanted[: LENGTH - start], place
            for start in (200_000, 3 * GIBIBYTE + 1, 4 * GIBIBYTE + (1 << 29)):
                file.seek(start)
                assert file.read(1 << 20) == bytes(1 << 20)
