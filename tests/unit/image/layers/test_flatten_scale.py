# SPDX-License-Identifier: BSD-3-Clause
"""Many files and one huge one: memory grows with names, not with bytes. `long`: 300,000 entries, 10 GB of zeros."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kedge.base.tree import Buffer, find, walk
from kedge.image.layers.flatten import flatten
from kedge.image.layers.layer_source import LayerSource
from tests.builders.layers import END, file, folder, header
from tests.requirements import REPOSITORY

pytestmark = pytest.mark.slow


class Discard:
    """Takes contents and counts them."""

    def __init__(self) -> None:
        self.bytes = 0
        self.largest = 0

    def add(self, data: Buffer) -> object:
        self.bytes += len(data)
        return 0

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        for chunk in chunks:
            self.bytes += len(chunk)
            self.largest = max(self.largest, len(chunk))
        return 1


def source_of(name: str, blocks: Iterator[bytes]) -> LayerSource:
    return LayerSource(name, None, None, lambda: blocks)


def many_files(count: int) -> Iterator[bytes]:
    block: list[bytes] = []
    for index in range(count):
        if index % 50 == 0:
            block.append(folder(f"opt/package{index // 50}"))
        block.append(file(f"opt/package{index // 50}/module{index}.py", b"x = %d\n" % index))
        if len(block) > 500:
            yield b"".join(block)
            block.clear()
    yield b"".join(block) + END


def one_large_file(size: int) -> Iterator[bytes]:
    zeros = bytes(1 << 20)
    yield header(b"large", fields={124: b"\x80" + size.to_bytes(11, "big")})
    for _ in range(size >> 20):
        yield zeros
    yield END


def peak_memory() -> int:
    """Bytes, of this program alone; getrusage would count the one that started it, too."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def flatten_many(count: int) -> None:
    """Two layers of the same names: all of the lower one's contents are hidden."""
    sink = Discard()
    root = flatten([source_of("low", many_files(count)), source_of("high", many_files(count))], sink)
    assert sum(1 for _ in walk(root)) == count + count // 50 + 1
    assert sink.bytes == sum(len(b"x = %d\n" % index) for index in range(count))


def flatten_large(size: int) -> None:
    sink = Discard()
    root = flatten([source_of("large", one_large_file(size))], sink)
    node = find(root, b"large")
    assert node is not None
    assert (node.size, sink.bytes) == (size, size)
    assert sink.largest <= 1 << 20


@pytest.mark.parametrize(
    ("call", "limit"),
    # measured: 222 MB for 300,000 files, half of it for the hidden ones; 30 MB are Python's own
    [
        ("flatten_many(60_000)", 100 << 20),
        ("flatten_large(1 << 30)", 60 << 20),
        pytest.param("flatten_many(300_000)", 320 << 20, marks=pytest.mark.long),
        pytest.param("flatten_large(10 << 30)", 60 << 20, marks=pytest.mark.long),
    ],
)
def test_flatten_stays_within_its_memory(call: str, limit: int) -> None:
    program = f"from {__name__} import *; {call}; print(peak_memory())"
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < limit, f"{int(done.stdout) >> 20} MB"
