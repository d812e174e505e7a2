# SPDX-License-Identifier: BSD-3-Clause
"""Trees for SquashFS tests, images made of them, and a comparable picture of an image that was read."""

from __future__ import annotations

import hashlib
import io
import random
import zlib
from collections.abc import Iterable
from typing import Any

from kedge.base.tree import ContentSink, Node, NodeKind, Xattrs, walk
from kedge.image.formats.squashfs.reader import SquashReader
from kedge.image.formats.squashfs.writer import SquashOptions, SquashWriter

CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")  # cap_net_raw=ep, as ping has it


def add_file(
    sink: ContentSink, folder: Node, name: bytes, data: bytes, *, mode: int = 0o644, owner: int = 0, mtime: int = 1
) -> Node:
    """A regular file in a directory."""
    node = Node(NodeKind.FILE, mode, owner, owner, mtime)
    node.size = len(data)
    node.content = sink.add(data) if data else None
    folder.children[name] = node
    return node


def add_folder(folder: Node, name: bytes, mode: int = 0o755) -> Node:
    """A directory in a directory."""
    return add_special(folder, name, NodeKind.DIRECTORY, mode=mode)


def add_special(
    folder: Node,
    name: bytes,
    kind: NodeKind,
    *,
    mode: int = 0o755,
    target: bytes = b"",
    rdev: int = 0,
    xattrs: Xattrs = (),
) -> Node:
    """Anything that has no content."""
    node = Node(kind, mode, 0, 0, 1)
    node.target, node.rdev, node.xattrs = target, rdev, xattrs
    folder.children[name] = node
    return node


def mixed_bytes(seed: int, size: int) -> bytes:
    """Bytes that compress to about half."""
    noise = random.Random(seed).randbytes(size // 2 + 1)
    return (noise + b"kedge " * (size // 12 + 2))[:size]


def forge_checksum(prefix: bytes, model: bytes) -> bytes:
    """`prefix` and four more bytes that give it the CRC-32 of `model`."""
    wanted, base = zlib.crc32(model), zlib.crc32(prefix + bytes(4))
    rows = [zlib.crc32(prefix + (1 << bit).to_bytes(4, "little")) ^ base for bit in range(32)]
    solution, target = 0, wanted ^ base
    pairs = [(row, 1 << bit) for bit, row in enumerate(rows)]
    for bit in range(32):
        pivot = next(pair for pair in pairs if pair[0] >> bit & 1)
        pairs.remove(pivot)
        pairs = [(row ^ pivot[0], mask ^ pivot[1]) if row >> bit & 1 else (row, mask) for row, mask in pairs]
        if target >> bit & 1:
            target, solution = target ^ pivot[0], solution ^ pivot[1]
    return prefix + solution.to_bytes(4, "little")


def fill_sample(sink: ContentSink) -> Node:
    """A tree with every kind of file, block boundaries, links, holes, duplicates, owners and attributes."""
    root = Node(NodeKind.DIRECTORY, 0o755, 0, 0, 1_700_000_000)
    sizes = add_folder(root, b"sizes")
    for size in (0, 1, 4095, 131071, 131072, 131073, 262144, 400_001):
        add_file(sink, sizes, b"%d" % size, mixed_bytes(size, size), owner=size % 70_000)
    holes = add_folder(root, b"holes")
    add_file(sink, holes, b"all", bytes(300_000))
    add_file(sink, holes, b"middle", b"a" * 131072 + bytes(262144) + b"z" * 10)
    add_file(sink, holes, b"end", b"a" * 131072 + bytes(131072))
    copies = add_folder(root, b"copies", 0o1777)
    add_file(sink, copies, b"large", mixed_bytes(400_001, 400_001))
    add_file(sink, copies, b"small", mixed_bytes(4095, 4095))
    add_file(sink, copies, b"nearly", mixed_bytes(400_001, 400_000) + b"?")
    linked = add_file(sink, copies, b"link-1", b"linked\n", mode=0o4755, mtime=1_600_000_000)
    add_folder(copies, b"deep").children[b"link-2"] = linked
    add_file(sink, copies, b"ping", b"\x7fELF" + bytes(100)).xattrs = (
        (b"security.capability", CAPABILITY),
        (b"user.note", b"\x00\xffbinary"),
    )
    kinds = add_folder(root, b"kinds")
    add_special(kinds, b"symlink", NodeKind.SYMLINK, mode=0o777, target=b"../sizes/1")
    add_special(kinds, b"null", NodeKind.CHARACTER_DEVICE, mode=0o666, rdev=(1 << 8) | 3)
    add_special(kinds, b"disk", NodeKind.BLOCK_DEVICE, mode=0o660, rdev=(8 << 8) | 1)
    add_special(kinds, b"pipe", NodeKind.FIFO, mode=0o600)
    add_special(kinds, b"socket", NodeKind.SOCKET)
    add_special(kinds, b"empty", NodeKind.DIRECTORY, mode=0o700, xattrs=((b"user.note", b"a directory"),))
    add_file(sink, kinds, b"name \xff\n\xe2\x82\xac", b"odd name")
    return root


def write_image(fill: Any = fill_sample, **options: Any) -> bytes:
    """An image in memory; `fill` takes the sink and returns the root."""
    file = io.BytesIO()
    with SquashWriter(file, SquashOptions(**options)) as writer:
        size = writer.finish(fill(writer))
    data = file.getvalue()
    assert len(data) == size
    return data


def read_image(data: bytes, threads: int = 1) -> tuple[Node, dict[bytes, tuple[Any, ...]]]:
    """The tree of an image and its picture."""
    with SquashReader(io.BytesIO(data), threads=threads) as reader:
        root = reader.read_tree()
        return root, picture(reader, root)


def picture(reader: SquashReader, root: Node) -> dict[bytes, tuple[Any, ...]]:
    """Everything about each path that must survive: metadata, and a digest of the content."""
    return {path: (*describe(node), digest(reader.chunks(node))) for path, node in [(b"", root), *walk(root)]}


def describe(node: Node) -> tuple[Any, ...]:
    """The metadata of a node as a tuple."""
    fields = (int(node.kind), node.mode, node.uid, node.gid, node.mtime, node.size)
    return (*fields, node.target, node.rdev, node.xattrs)


def digest(chunks: Iterable[bytes]) -> str:
    """A digest of a content."""
    total = hashlib.sha256()
    for chunk in chunks:
        total.update(chunk)
    return total.hexdigest()
