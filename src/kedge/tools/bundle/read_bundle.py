# SPDX-License-Identifier: BSD-3-Clause
"""Reads the index of a bundle: what it is made for, and whether it is whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.image.formats.elf import read_elf
from kedge.system.files import explained
from kedge.tools.bundle import layout
from kedge.tools.bundle.write_bundle import WrittenBundle

_LONGEST_HEAD = 1 << 20
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def describe_bundle(path: Path) -> WrittenBundle:
    """What the file says of itself, checked against its content."""
    with explained(path):
        data = path.read_bytes()
    elf = read_elf(path)
    place = data.find(layout.MAGIC, 0, _LONGEST_HEAD)
    if elf is None or place < 0 or len(data) < place + layout.INDEX.size:
        raise UnsupportedFormat(f"{path} is not a bundle of kedge", hint="'kedge bundle' makes one")
    _, offset, size, unpacked, digest = layout.INDEX.unpack_from(data, place)
    payload = data[offset : offset + size]
    if not size or hashlib.sha256(payload).digest() != digest:
        raise CorruptImage(f"{path} is truncated or damaged", hint="copy it again")
    machine = _MACHINES.get(elf.architecture, elf.architecture)
    return WrittenBundle(str(path), machine, len(data), unpacked, digest.hex()[:32])
