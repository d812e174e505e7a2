# SPDX-License-Identifier: BSD-3-Clause
"""What an image file holds, as a digest: equal for copies, and for the same file with other times or signatures.

All bytes of the root file system count. A digest of its tables alone would be faster, and whoever makes an image could
have it taken for another one: what is unpacked of one image must never be started in the name of another.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kedge.errors import CorruptImage
from kedge.image.image_file import ImageFile, identify
from kedge.system.files import explained

_FORMAT = b"kedge unpacked 1\0"  # raise it when the unpacked files change
_SLICE = 64 << 20  # bytes that one thread hashes at a time
_PIECE = 1 << 20
_TICK = 0.05  # seconds; clocks of file systems tick every 10 ms or faster


def identify_settled(path: str) -> ImageFile:
    """What the file is, once a change in this moment would show: two changes within a tick have one time."""
    with explained(path):
        age = time.time() - Path(path).stat().st_ctime
    if 0 <= age < _TICK:
        time.sleep(_TICK - age)
    return identify(path)


def hash_content(image: ImageFile, threads: int) -> str:
    """The identity of what would be unpacked: the file system, and the OCI config that says how to start it.

    The digest is of digests of slices, so that many threads can take part.
    """
    whole = hashlib.sha256(_FORMAT + hashlib.sha256(image.read_config()).digest())
    starts = range(0, image.size, _SLICE)
    with explained(image.path), Path(image.path).open("rb") as file, ThreadPoolExecutor(threads) as pool:
        os.posix_fadvise(file.fileno(), image.offset, image.size, os.POSIX_FADV_SEQUENTIAL)

        def hash_slice(start: int) -> bytes:
            return _hash_range(file.fileno(), image, start, min(start + _SLICE, image.size))

        for digest in pool.map(hash_slice, starts):
            whole.update(digest)
    return f"{image.file_system}-{whole.hexdigest()}"


def _hash_range(file: int, image: ImageFile, start: int, end: int) -> bytes:
    hashed = hashlib.sha256()
    while start < end:
        piece = os.pread(file, min(_PIECE, end - start), image.offset + start)
        if not piece:
            raise CorruptImage(
                f"{image.path} is truncated or damaged: its file system is not all there",
                hint="fetch the file again, and compare its size and checksum with the original",
            )
        hashed.update(piece)
        start += len(piece)
    return hashed.digest()
