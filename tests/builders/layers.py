# SPDX-License-Identifier: BSD-3-Clause
"""Layers for tests in a few words: `layer(folder("etc"), file("etc/motd", b"hi"), whiteout("etc/old"))`.

Each entry function gives the bytes of its tar blocks, so broken and hostile ones are made by editing bytes.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.tree import Buffer, Node, walk
from kedge.image.layers.layer_source import LayerSource

BLOCK = 512
END = bytes(2 * BLOCK)


def octal(value: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, value)


def header(
    name: bytes,
    kind: bytes = b"0",
    *,
    size: int = 0,
    mode: int = 0o644,
    owner: tuple[int, int] = (0, 0),
    mtime: int = 0,
    link: bytes = b"",
    fields: dict[int, bytes] | None = None,
) -> bytes:
    """One ustar header; `fields` puts bytes at offsets after everything else, before the checksum."""
    block = bytearray(BLOCK)
    places = {
        0: name[:100],
        100: octal(mode, 8),
        108: octal(owner[0], 8),
        116: octal(owner[1], 8),
        124: octal(size, 12),
        136: octal(mtime, 12),
        156: kind,
        157: link[:100],
        257: b"ustar\x0000",
        **(fields or {}),
    }
    for place, data in places.items():
        block[place : place + len(data)] = data
    return seal(bytes(block))


def seal(block: bytes) -> bytes:
    """Write the right checksum into a header."""
    block = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def pax_record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def pax(records: dict[bytes, bytes], kind: bytes = b"x") -> bytes:
    """An extended header for the next entry (or with kind b"g" for all that follow)."""
    data = b"".join(pax_record(key, value) for key, value in records.items())
    return header(b"PaxHeaders/x", kind, size=len(data)) + padded(data)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    """A GNU long name (or with kind b"K" long link target) for the next entry."""
    data = name + b"\0"
    return header(b"././@LongLink", kind, size=len(data), fields={257: b"ustar  \0"}) + padded(data)


def _name(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def entry(name: str | bytes, kind: bytes, data: bytes = b"", **options: object) -> bytes:
    """Any entry; long names and targets, xattrs (`xattrs={b"user.x": b"1"}`) and odd numbers become PAX records."""
    raw = _name(name)
    xattrs = options.pop("xattrs", {})
    link = _name(options.pop("link", b""))  # type: ignore[arg-type]
    records = {b"SCHILY.xattr." + key: value for key, value in xattrs.items()}  # type: ignore[attr-defined]
    if len(raw) > 100:
        records[b"path"] = raw
    if len(link) > 100:
        records[b"linkpath"] = link
    block = header(raw, kind, size=len(data), link=link, **options)  # type: ignore[arg-type]
    return (pax(records) if records else b"") + block + padded(data)


def file(name: str | bytes, data: bytes = b"", **options: object) -> bytes:
    return entry(name, b"0", data, **options)


def folder(name: str | bytes, *, mode: int = 0o755, **options: object) -> bytes:
    return entry(_name(name) + b"/", b"5", mode=mode, **options)


def symlink(name: str | bytes, target: str | bytes, **options: object) -> bytes:
    return entry(name, b"2", link=target, mode=0o777, **options)


def hard_link(name: str | bytes, target: str | bytes) -> bytes:
    return entry(name, b"1", link=target)


def device(name: str | bytes, major: int, minor: int, kind: bytes = b"3", **options: object) -> bytes:
    return entry(name, kind, fields={329: octal(major, 8), 337: octal(minor, 8)}, **options)


def fifo(name: str | bytes, **options: object) -> bytes:
    return entry(name, b"6", **options)


def whiteout(path: str | bytes) -> bytes:
    head, slash, name = _name(path).rpartition(b"/")
    return file(head + slash + b".wh." + name)


def opaque(path: str | bytes) -> bytes:
    return file(_name(path).rstrip(b"/") + b"/.wh..wh..opq" if path else b".wh..wh..opq")


def layer(*entries: bytes, end: bytes = END) -> bytes:
    """A tar of these entries."""
    return b"".join(entries) + end


def compress(tar: bytes) -> bytes:
    """As registries keep it; the same bytes every time."""
    return gzip.compress(tar, 1, mtime=0)


def sources(*tars: bytes, chunk: int = 1 << 16, compressed: bool = False) -> list[LayerSource]:
    """Layer sources, lowest first, named layer0, layer1, …"""
    return [_source(f"layer{index}", tar, chunk, compressed) for index, tar in enumerate(tars)]


def _source(name: str, tar: bytes, chunk: int, compressed: bool) -> LayerSource:
    blob = compress(tar) if compressed else tar

    def open_blob() -> Iterator[bytes]:
        for place in range(0, len(blob), chunk):
            yield blob[place : place + chunk]

    diff_id = Digest("sha256", hashlib.sha256(tar).hexdigest())
    return LayerSource(name, Digest.of(blob), diff_id, open_blob)


class MemorySink:
    """Keeps contents in memory; a ContentSource too. Counts what it was given."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.streams = 0

    def add(self, data: Buffer) -> object:
        self.stored.append(bytes(data))
        return self.stored[-1]

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        self.streams += 1
        data = b"".join(chunks)
        assert len(data) == size
        self.stored.append(data)
        return data

    def chunks(self, node: Node) -> Iterator[bytes]:
        if node.content:
            assert isinstance(node.content, bytes)
            yield node.content


def describe(root: Node) -> dict[str, tuple[object, ...]]:
    """A tree as comparable values: kind, mode, owner, time, xattrs, what is in it, and which names are one file."""
    firsts: dict[int, str] = {}
    out: dict[str, tuple[object, ...]] = {}
    for path, node in [(b"", root), *walk(root)]:
        text = path.decode("utf-8", "backslashreplace")
        first = firsts.setdefault(id(node), text)
        inside: object = node.content or b"" if node.kind == 2 else node.target or node.rdev
        meta = (node.kind.name, oct(node.mode), node.uid, node.gid, node.mtime, node.xattrs)
        out[text] = (*meta, inside, first)
    return out


def contents(root: Node) -> dict[str, bytes | str]:
    """Names and what is there: bytes of a file, `-> target`, or the kind's name."""
    out: dict[str, bytes | str] = {}
    for path, node in walk(root):
        text = path.decode("utf-8", "backslashreplace")
        if node.kind == 2:
            out[text] = node.content or b""  # type: ignore[assignment]
        elif node.kind == 3:
            out[text] = "-> " + node.target.decode()
        else:
            out[text] = node.kind.name.lower()
    return out


def names_in(folder: Path) -> list[str]:
    """What is in a directory on disk, hidden names too."""
    return sorted(path.name for path in folder.iterdir())
