# SPDX-License-Identifier: BSD-3-Clause
"""Floors of a pull on many cores: every layer inflated and its bytes compressed, and nothing else.

    side_by_side.py LAYOUT processes   one process per layer, as many at once as there are cores
    side_by_side.py LAYOUT rapidgzip   one layer after the other, each inflated by all cores; needs rapidgzip

Nothing is verified, parsed or written. `floor.py` is the floor of one thread that inflates.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import zstandard
from zlib_ng import zlib_ng

BLOCK = 128 * 1024
READ = 1 << 20
BATCH = 2 << 20


def compress(data: bytes) -> int:
    codec = zstandard.ZstdCompressor(level=3)
    blocks = [memoryview(data)[start : start + BLOCK] for start in range(0, len(data), BLOCK)]
    packed = codec.multi_compress_to_buffer(blocks, threads=1)
    return sum(len(packed[number]) for number in range(len(packed)))


def process_layer(path: Path) -> tuple[int, int]:
    inflater, plain, packed = zlib_ng.decompressobj(31), 0, 0
    with path.open("rb") as source:
        while chunk := source.read(READ):
            data = inflater.decompress(chunk)
            plain += len(data)
            packed += compress(data) if data else 0
    return plain, packed


def run_processes(layers: list[Path], cores: int) -> tuple[int, int]:
    largest_first = sorted(layers, key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(min(len(layers), cores)) as pool:
        results = list(pool.map(process_layer, largest_first))
    return sum(plain for plain, _ in results), sum(packed for _, packed in results)


def run_rapidgzip(layers: list[Path], cores: int) -> tuple[int, int]:
    import rapidgzip

    plain = packed = 0
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for path in layers:
            with rapidgzip.open(str(path), parallelization=cores) as source:
                while data := source.read(BATCH):
                    plain += len(data)
                    waiting.append(pool.submit(compress, data))
                    while len(waiting) > 2 * cores:
                        packed += waiting.popleft().result()
        packed += sum(job.result() for job in waiting)
    return plain, packed


def main(layout: Path, way: str) -> None:
    blobs, cores = layout / "blobs/sha256", len(os.sched_getaffinity(0))
    entry = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((blobs / entry["digest"][7:]).read_text())
    layers = [blobs / layer["digest"][7:] for layer in manifest["layers"]]
    plain, packed = (run_rapidgzip if way == "rapidgzip" else run_processes)(layers, cores)
    print(json.dumps({"cores": cores, "plain": plain, "bytes": packed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
