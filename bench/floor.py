# SPDX-License-Identifier: BSD-3-Clause
"""The floor of a pull: inflate every layer and compress the bytes again, on all threads, and do nothing else.

Nothing is downloaded, verified, parsed or written. What a pull takes beyond this is its own doing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard
from zlib_ng import zlib_ng

BLOCK = 128 * 1024


def main(layout: Path) -> None:
    threads = len(os.sched_getaffinity(0))
    local, room = threading.local(), threading.Semaphore(32 * threads)

    def compress(block: bytes) -> int:
        if not hasattr(local, "codec"):
            local.codec = zstandard.ZstdCompressor(level=3)
        return len(local.codec.compress(block))

    blobs = layout / "blobs" / "sha256"
    entry = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((blobs / entry["digest"][7:]).read_text())
    sizes, plain = [], 0
    with ThreadPoolExecutor(threads) as pool:
        for layer in manifest["layers"]:
            inflater = zlib_ng.decompressobj(31)
            with (blobs / layer["digest"][7:]).open("rb") as source:
                while chunk := source.read(1 << 18):
                    data = inflater.decompress(chunk)
                    plain += len(data)
                    for start in range(0, len(data), BLOCK):
                        room.acquire()
                        job = pool.submit(compress, data[start : start + BLOCK])
                        job.add_done_callback(lambda _: room.release())
                        sizes.append(job)
        packed = sum(job.result() for job in sizes)
    print(json.dumps({"threads": threads, "plain": plain, "bytes": packed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
