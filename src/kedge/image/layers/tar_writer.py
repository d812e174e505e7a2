# SPDX-License-Identifier: BSD-3-Clause
"""Writes a tree as one layer: ustar, with PAX records where ustar has no room; the same tree gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
import os
import urllib.parse
from collections.abc import Iterator
from typing import BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.tree import Buffer, ContentSource, Node, NodeKind, walk
from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.image.formats.compression.gzip_layers import GzipLayerCompressor
from kedge.image.formats.compression.streams import StreamCompressor
from kedge.image.layers.member_names import show_name
from kedge.image.layers.tar_layout import BLOCK, HEADER, ZERO_BLOCK
from kedge.image.layers.whiteouts import WHITEOUT_PREFIX

_FLAGS = {
    NodeKind.FILE: b"0",
    NodeKind.SYMLINK: b"2",
    NodeKind.CHARACTER_DEVICE: b"3",
    NodeKind.BLOCK_DEVICE: b"4",
    NodeKind.DIRECTORY: b"5",
    NodeKind.FIFO: b"6",
}
_HARD_LINK = b"1"
_SMALL_MAXIMUM = 0o7777777  # seven octal digits: mode, owners, device numbers
_LARGE_MAXIMUM = 0o77777777777  # eleven: size and time
_BATCH = 1 << 18


@frozen
class LayerResult:
    """A layer that was written: digest and size as stored, digest of the tar inside."""

    digest: Digest
    diff_id: Digest
    size: int


def write_layer(
    root: Node,
    source: ContentSource,
    out: BinaryIO,
    compression: str = "gzip",
    *,
    threads: int = 1,
    level: int | None = None,
    holds_whiteouts: bool = False,
    epoch: int | None = None,
) -> LayerResult:
    """Write the tree below `root` to `out`, compressed as "gzip", "zstd" or "none"; sockets are left out.

    `threads` compress; the bytes of gzip do not depend on how many, those of zstd only on whether it is one. A tree
    that `holds_whiteouts` is a layer above others: `.wh.` names are written as they are, a root that no step changed
    (`layer` is -1) is not written. No time is later than `epoch`.
    """
    stream = _LayerStream(out, compression, threads, level)
    firsts: dict[int, bytes] = {}
    for path, node in walk(root) if holds_whiteouts and root.layer < 0 else [(b"", root), *walk(root)]:
        if node.kind is NodeKind.SOCKET:
            continue
        if not holds_whiteouts and path.rpartition(b"/")[2].startswith(WHITEOUT_PREFIX):
            raise refuse_whiteout(path)
        if epoch is not None and node.mtime > epoch:
            node.mtime = epoch
        first = firsts.setdefault(id(node), path) if node.kind is not NodeKind.DIRECTORY else path
        if first != path:
            stream.write(_encode_member(path, node, first))
            continue
        stream.write(_encode_member(path, node, None))
        if node.kind is NodeKind.FILE and node.size:
            _copy_content(path, node, source, stream)
    stream.write(2 * ZERO_BLOCK)
    return stream.finish()


def refuse_whiteout(path: bytes) -> UnsupportedFormat:
    """The error for a file whose name means a deletion in a layer."""
    return UnsupportedFormat(
        f"'{show_name(path)}' cannot be stored in a layer: names that begin with '.wh.' mark deleted files in layers",
        context={"path": show_name(path)},
        hint="rename or remove the file first",
    )


def _encode_member(path: bytes, node: Node, hard_link_to: bytes | None) -> bytes:
    """The header of one member, with an extended header before it where needed."""
    name = (path + b"/" if path else b"./") if node.kind is NodeKind.DIRECTORY else path
    link = node.target if hard_link_to is None else hard_link_to
    size = node.size if node.kind is NodeKind.FILE and hard_link_to is None else 0
    prefix, short = _split_name(name)
    records = dict(_numbers_as_records(node, size))
    if short is None:
        records[b"path"] = name
    if len(link) > 100 or not link.isascii():
        records[b"linkpath"] = link
    if hard_link_to is None:
        records.update(_encode_xattr(key, value) for key, value in node.xattrs)
    flag = _FLAGS[node.kind] if hard_link_to is None else _HARD_LINK
    header = _encode_header(node, prefix, name[:100] if short is None else short, flag, (size, link[:100]))
    return (_encode_records(records) if records else b"") + header


def _encode_xattr(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The usual record, or libarchive's for a name that would end at its "=" or a value that would be no record."""
    if b"=" in name or not value:
        return b"LIBARCHIVE.xattr." + urllib.parse.quote_from_bytes(name, safe=".").encode(), base64.b64encode(value)
    return b"SCHILY.xattr." + name, value


def _split_name(name: bytes) -> tuple[bytes, bytes | None]:
    """Prefix and name as ustar stores them; None where the name does not fit or is not ASCII."""
    if not name.isascii():
        return b"", None
    if len(name) <= 100:
        return b"", name
    cut = name.rfind(b"/", 0, 156)
    while cut > 0:
        if 0 < len(name) - cut - 1 <= 100:
            return name[:cut], name[cut + 1 :]
        if len(name) - cut - 1 > 100:
            break
        cut = name.rfind(b"/", 0, cut)
    return b"", None


def _numbers_as_records(node: Node, size: int) -> Iterator[tuple[bytes, bytes]]:
    limits = (
        (b"uid", node.uid, _SMALL_MAXIMUM),
        (b"gid", node.gid, _SMALL_MAXIMUM),
        (b"size", size, _LARGE_MAXIMUM),
        (b"mtime", node.mtime, _LARGE_MAXIMUM),
    )
    return ((key, b"%d" % value) for key, value, maximum in limits if not 0 <= value <= maximum)


def _encode_header(node: Node, prefix: bytes, name: bytes, flag: bytes, content: tuple[int, bytes]) -> bytes:
    size, link = content
    is_device = node.kind in (NodeKind.BLOCK_DEVICE, NodeKind.CHARACTER_DEVICE)
    header = HEADER.pack(
        name,
        _octal(node.mode, 8),
        _octal(node.uid, 8),
        _octal(node.gid, 8),
        _octal(size, 12),
        _octal(node.mtime, 12),
        b" " * 8,
        flag,
        link,
        b"ustar\0",
        b"00",
        b"",
        b"",
        _octal(os.major(node.rdev) if is_device else 0, 8),
        _octal(os.minor(node.rdev) if is_device else 0, 8),
        prefix,
    )
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def _octal(value: int, width: int) -> bytes:
    """Octal text; 0 for what does not fit, which a PAX record then tells."""
    fits = 0 <= value < 8 ** (width - 1)
    return b"%0*o\0" % (width - 1, value if fits else 0)


def _encode_records(records: dict[bytes, bytes]) -> bytes:
    data = b"".join(_encode_record(key, value) for key, value in sorted(records.items()))
    header = _encode_header(Node(NodeKind.FILE, 0o644), b"", b"PaxHeaders/x", b"x", (len(data), b""))
    return header + data + bytes(-len(data) % BLOCK)


def _encode_record(key: bytes, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where the length counts its own digits."""
    counted = len(key) + len(value) + 3
    length = counted + len(str(counted))
    if len(str(length)) != len(str(counted)):
        length = counted + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _copy_content(path: bytes, node: Node, source: ContentSource, stream: _LayerStream) -> None:
    written = 0
    for chunk in source.chunks(node):
        stream.write(chunk)
        written += len(chunk)
    if written != node.size:
        raise CorruptImage(f"'{show_name(path)}' has {written} bytes instead of {node.size}")
    stream.write(ZERO_BLOCK[: -node.size % BLOCK])


class _LayerStream:
    """Hashes what is written before and after compression; small writes are gathered, headers are many."""

    def __init__(self, out: BinaryIO, compression: str, threads: int, level: int | None) -> None:
        self._out = out
        self._compressor = (
            GzipLayerCompressor(threads, level)
            if compression == "gzip"
            else StreamCompressor(compression, level, threads)
        )
        self._inside = hashlib.sha256()
        self._outside = hashlib.sha256()
        self._size = 0
        self._batch = bytearray()

    def write(self, data: Buffer) -> None:
        if len(data) < _BATCH:
            self._batch += data
            if len(self._batch) < _BATCH:
                return
            data = b""
        self._flush_batch()
        if data:
            self._take(data)

    def finish(self) -> LayerResult:
        self._flush_batch()
        self._emit(self._compressor.flush())
        return LayerResult(
            digest=Digest("sha256", self._outside.hexdigest()),
            diff_id=Digest("sha256", self._inside.hexdigest()),
            size=self._size,
        )

    def _flush_batch(self) -> None:
        if self._batch:
            self._take(bytes(self._batch))
            self._batch.clear()

    def _take(self, data: Buffer) -> None:
        self._inside.update(data)
        self._emit(self._compressor.compress(data))

    def _emit(self, data: bytes) -> None:
        if data:
            self._outside.update(data)
            self._out.write(data)
            self._size += len(data)
