# SPDX-License-Identifier: BSD-3-Clause
"""Looks for a text in all that a build leaves: compressed layers, archives in archives, file systems of SIF files."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from kedge.base.tree import NodeKind, walk
from kedge.image.formats.compression.streams import inflate
from kedge.image.formats.sif.reader import SifReader
from kedge.image.formats.squashfs.reader import SquashReader

_COMPRESSED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")


def find_text(text: bytes, folder: Path) -> list[str]:
    """The files below a directory that contain the text, or whose names or links do."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            with contextlib.suppress(FileNotFoundError):  # somebody cleans up meanwhile
                if path.is_symlink():
                    found += [str(path)] if text in os.fsencode(os.readlink(path)) else []  # noqa: PTH115
                elif path.is_file():
                    found += [where for where, data in open_all(str(path), path.read_bytes()) if text in data]
            found += [str(path)] if text in os.fsencode(name) else []
    return found


def open_all(where: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file's bytes, and those of all that is packed in it."""
    yield where, data
    if data.startswith(_COMPRESSED):
        yield from open_all(f"{where} inflated", b"".join(inflate(iter([data]), where=where)))
    elif data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield from open_all(f"{where}: {member.name}", content.read())
    elif data[32:42] == b"SIF_MAGIC\0":
        yield from _open_sif(where, data)


def _open_sif(where: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    file = io.BytesIO(data)
    partition = SifReader(file, where).root_partition()
    with SquashReader(file, partition.offset, partition.size) as reader:
        for path, node in walk(reader.read_tree()):
            yield f"{where}: {os.fsdecode(path)}", path + b"\n" + node.target
            if node.kind is NodeKind.FILE:
                yield from open_all(f"{where}: {os.fsdecode(path)}", b"".join(reader.chunks(node)))
