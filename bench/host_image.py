# SPDX-License-Identifier: BSD-3-Clause
"""An image made of the files of this machine: an OCI layout of several gzip layers, for machines without a network.

The files of `roots` are sorted by name and cut into layers of about equal size, each compressed in a process of its
own with zlib level 6, as the builders of images do. The same files give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from image import EPOCH, write_image

_LARGEST = 1 << 31  # a file beyond it would be most of a layer
_WRITE = 1 << 20


class _Packer(io.RawIOBase):
    """Takes a tar, writes it compressed and knows both digests."""

    def __init__(self, path: Path) -> None:
        self.plain, self.packed, self.size = hashlib.sha256(), hashlib.sha256(), 0
        self._engine = zlib.compressobj(6, zlib.DEFLATED, 31)
        self._file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:  # type: ignore[override]
        self.plain.update(data)  # type: ignore[arg-type]
        self._put(self._engine.compress(data))  # type: ignore[arg-type]
        return len(data)  # type: ignore[arg-type]

    def finish(self) -> None:
        self._put(self._engine.flush())
        self._file.close()

    def _put(self, data: bytes) -> None:
        self.packed.update(data)
        self.size += len(data)
        self._file.write(data)


def build_host_image(work: Path, megabytes: int, layers: int, roots: list[Path]) -> Path:
    """The layout for this size, built once and kept under `work`."""
    layout = work / f"host-{megabytes}MB-{layers}layers"
    if (layout / "index.json").exists():
        return layout
    parts = _cut(_take(roots, megabytes * 1_000_000), layers)
    total = sum(size for part in parts for _, size in part)
    if total < megabytes * 1_000_000 * 0.95:
        names = ", ".join(map(str, roots))
        sys.exit(f"{names} hold only {total / 1e6:.0f} MB: name more directories with --roots, or a smaller --size")
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(min(layers, len(os.sched_getaffinity(0)))) as pool:
        jobs = [pool.submit(_write_layer, layout, number, part) for number, part in enumerate(parts)]
        write_image(layout, [job.result() for job in jobs], "bench")
    return layout


def _take(roots: list[Path], wanted: int) -> list[tuple[str, int]]:
    found, total = [], 0
    for path, size in _list_files(roots):
        if total >= wanted:
            break
        found.append((path, size))
        total += size
    return found


def _list_files(roots: list[Path]) -> Iterator[tuple[str, int]]:
    """Readable regular files, in the order of their names; nothing of another file system."""
    for root in roots:
        if not root.is_dir():
            continue
        device = root.stat().st_dev
        for folder, names, files in os.walk(root):
            names[:] = sorted(name for name in names if _is_on(f"{folder}/{name}", device))
            for name in sorted(files):
                path = f"{folder}/{name}"
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST and os.access(path, os.R_OK):
                    yield path, status.st_size


def _is_on(path: str, device: int) -> bool:
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and status.st_dev == device


def _cut(files: list[tuple[str, int]], layers: int) -> list[list[tuple[str, int]]]:
    share = sum(size for _, size in files) / layers
    parts: list[list[tuple[str, int]]] = [[] for _ in range(layers)]
    done = 0
    for path, size in files:
        parts[min(int(done / share), layers - 1)].append((path, size))
        done += size
    return parts


def _write_layer(layout: Path, number: int, files: list[tuple[str, int]]) -> dict[str, object]:
    blobs = layout / "blobs/sha256"
    temporary = blobs / f"layer-{number}.tmp"
    packer = _Packer(temporary)
    buffered = io.BufferedWriter(packer, _WRITE)
    with tarfile.open(fileobj=buffered, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, size in files:
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mtime, info.mode = size, EPOCH, 0o755 if os.access(path, os.X_OK) else 0o644
            with Path(path).open("rb") as content:
                tar.addfile(info, content)
    buffered.flush()
    packer.finish()
    temporary.rename(blobs / packer.packed.hexdigest())
    return {
        "digest": f"sha256:{packer.packed.hexdigest()}",
        "size": packer.size,
        "diff_id": f"sha256:{packer.plain.hexdigest()}",
    }
