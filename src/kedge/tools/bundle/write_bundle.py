# SPDX-License-Identifier: BSD-3-Clause
"""Writes a bundle: the head for this machine with its index filled in, then the files, packed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from kedge.base.frozen import JsonValue, frozen
from kedge.errors import UnsupportedFormat
from kedge.image.formats.compression.gzip_layers import deflate_raw
from kedge.system.files import write_atomically
from kedge.tools.bundle import layout


@frozen
class BundledFile:
    """One file of a bundle."""

    content: bytes
    is_program: bool = False
    is_vital: bool = False  # every start looks whether it is there


@frozen
class WrittenBundle(JsonValue):
    """What was written, and where."""

    path: str
    machine: str
    bytes: int
    unpacked: int
    digest: str  # of the payload: the name of the directory it is unpacked to


def find_head(machine: str) -> Path:
    """The head for a machine as `uname -m` names it."""
    if machine not in layout.MACHINES:
        raise UnsupportedFormat(
            f"kedge has no bundle for {machine}", hint=f"bundles are made for {' and '.join(layout.MACHINES)}"
        )
    return Path(__file__).with_name(f"head-{machine}")


def write_bundle(path: Path, machine: str, files: Mapping[str, BundledFile]) -> WrittenBundle:
    """Write the file; one that is there is replaced."""
    head = find_head(machine).read_bytes()
    whole = {**files, layout.PYTHON: BundledFile(head, is_program=True, is_vital=True)}
    whole[layout.FILES] = BundledFile(_describe(whole).encode(), is_vital=True)
    payload = pack_files(whole)
    unpacked = sum(len(file.content) for file in whole.values())
    digest = hashlib.sha256(payload)
    place = head.index(layout.MAGIC)
    index = layout.INDEX.pack(layout.MAGIC, len(head), len(payload), unpacked, digest.digest())
    filled = head[:place] + index + head[place + layout.INDEX.size :]
    write_atomically(path, filled + payload, mode=0o755)
    return WrittenBundle(str(path), machine, len(head) + len(payload), unpacked, digest.hexdigest()[:32])


def pack_files(files: Mapping[str, BundledFile]) -> bytes:
    """The payload: directories first, then files by name, then the mark that all of it is there."""
    vital = "".join(f"{len(file.content)} {name}\n" for name, file in sorted(files.items()) if file.is_vital)
    blocks = list(_pack_blocks([*_list_entries(files), (layout.COMPLETE, layout.PLAIN, vital.encode())]))
    sizes = b"".join(layout.BLOCK.pack(size, len(packed)) for size, packed in blocks)
    return layout.COUNT.pack(len(blocks)) + sizes + b"".join(packed for _, packed in blocks)


def _list_entries(files: Mapping[str, BundledFile]) -> Iterator[tuple[str, int, bytes]]:
    folders = {folder for name in files for folder in _list_parents(name)}
    yield from ((folder, layout.DIRECTORY, b"") for folder in sorted(folders))
    for name, file in sorted(files.items()):
        yield name, layout.PROGRAM if file.is_program else layout.PLAIN, file.content


def _list_parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _pack_blocks(entries: list[tuple[str, int, bytes]]) -> Iterator[tuple[int, bytes]]:
    waiting = bytearray()
    for name, mode, content in entries:
        encoded = name.encode()
        waiting += layout.ENTRY.pack(mode, len(content), len(encoded)) + encoded + content
        if len(waiting) >= layout.BLOCK_SIZE:
            yield len(waiting), deflate_raw(bytes(waiting))
            waiting.clear()
    if waiting:
        yield len(waiting), deflate_raw(bytes(waiting))


def _describe(files: Mapping[str, BundledFile]) -> str:
    lines = (
        f"{hashlib.sha256(file.content).hexdigest()} {len(file.content)} {name}" for name, file in sorted(files.items())
    )
    return "\n".join(lines) + "\n"
