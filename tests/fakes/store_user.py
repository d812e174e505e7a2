# SPDX-License-Identifier: BSD-3-Clause
"""A process that uses a store: `python -m tests.fakes.store_user ROOT LOG ACTION`, for tests with many of them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import BinaryIO

from kedge.image.store.store import Store
from tests.builders.blobs import BlobSource, describe, make_content

BLOB_SIZE = 8 << 20
IMAGE_KEY = "sha256:0000 linux/arm64 zstd 1"


def ingest_blob(root: Path, log: Path, pause: float) -> None:
    content = make_content(BLOB_SIZE)
    source = BlobSource(content, log, pause=pause)
    with Store(root) as store:
        ingest = store.ingest(describe(content), source.open_at)
        received = b"".join(ingest.follow())
        assert received == content
        assert ingest.wait().stat().st_size == BLOB_SIZE


def build_image(root: Path, log: Path, pause: float) -> None:
    def build(file: BinaryIO) -> None:
        with log.open("a") as notes:
            notes.write(f"{os.getpid()}\n")
        time.sleep(pause)
        file.write(b"image" * 1000)

    with Store(root) as store:
        path = store.build_image(IMAGE_KEY, build)
        assert path.read_bytes() == b"image" * 1000


def main() -> None:
    root, log, action, pause = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    {"ingest": ingest_blob, "build": build_image}[action](root, log, pause)


if __name__ == "__main__":
    main()
