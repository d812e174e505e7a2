# SPDX-License-Identifier: BSD-3-Clause
"""Compares an image with what came in: a digest of every content, taken before the writer had it, and the whole tree.

Kept is a SHA-256 for each stored content, about 200 bytes, and for the comparison a second tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import BinaryIO

from kedge.base.tree import Buffer, Node, NodeKind, walk
from kedge.errors import CorruptImage, FaultyImage
from kedge.image.formats.squashfs.content_writer import ContentStore, FileBlocks
from kedge.image.formats.squashfs.inode_reader import FileContent
from kedge.image.formats.squashfs.layout import LAST_TIME, XATTR_PREFIXES
from kedge.image.formats.squashfs.reader import SquashReader

_Pair = tuple[bytes, Node, Node]  # a path, the node that was written, and the one that was read


class DigestSink:
    """Stands before the store of contents, and notes what it is given. Takes no blocks that were packed elsewhere."""

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self._digests: dict[int, bytes] = {}

    def add(self, data: Buffer) -> object:
        """Take a whole file."""
        return self._note(self._store.add(data), hashlib.sha256(data).digest())

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Take a file in chunks."""
        digest = hashlib.sha256()

        def watch() -> Iterator[Buffer]:
            for chunk in chunks:
                digest.update(chunk)
                yield chunk

        return self._note(self._store.add_stream(size, watch()), digest.digest())

    def find(self, token: object) -> bytes | None:
        """The digest of what was stored as `token`."""
        return self._digests.get(_key(token))

    def _note(self, token: object, digest: bytes) -> object:
        if token is not None and self._digests.setdefault(_key(token), digest) != digest:
            raise FaultyImage.of(CorruptImage("two files with different contents were stored as one"))
        return token


def _key(token: object) -> int:
    return -1 - token.first if isinstance(token, FileBlocks) else int(token)  # type: ignore[call-overload]


def compare_image(file: BinaryIO, place: tuple[int, int], root: Node, sink: DigestSink, *, threads: int = 1) -> int:
    """Read the image at an offset and of a size, and compare it with the tree; returns how many files it has.

    A difference is `CorruptImage`.
    """
    with SquashReader(file, *place, threads=threads) as reader:
        files = [pair for pair in _pair_nodes(root, reader.read_tree()) if pair[1].kind is NodeKind.FILE]
        files.sort(key=lambda pair: _order(pair[2]))  # as they are stored, so that each fragment is read once
        last: tuple[object, int, bytes] = (None, 0, b"")
        for path, written, read in files:
            if not written.size:
                continue
            if last[:2] != (read.content, read.size):
                last = (read.content, read.size, _hash(reader.chunks(read)))
            if sink.find(written.content) != last[2]:
                raise _differ(path, "its content")
    return len(files)


def _pair_nodes(root: Node, found: Node) -> Iterator[_Pair]:
    names: dict[Node, Node] = {}
    for one, other in zip_longest([(b"", root), *walk(root)], [(b"", found), *walk(found)]):
        if one is None or other is None or one[0] != other[0]:
            raise _differ((one or other)[0], "its name")
        path, written = one
        read = other[1]
        for what, is_equal in _compare_nodes(written, read):
            if not is_equal:
                raise _differ(path, what)
        if names.setdefault(written, read) is not read:
            raise _differ(path, "its hard links")
        yield path, written, read


def _compare_nodes(one: Node, other: Node) -> Iterator[tuple[str, bool]]:
    xattrs = tuple(sorted(pair for pair in one.xattrs if pair[0].startswith(XATTR_PREFIXES)))
    yield "its type", one.kind == other.kind
    yield "its permissions", one.mode & 0o7777 == other.mode
    yield "its owner", (one.uid, one.gid) == (other.uid, other.gid)
    yield "its time", min(max(one.mtime, 0), LAST_TIME) == other.mtime
    yield "its size", one.kind is not NodeKind.FILE or one.size == other.size
    yield "its target", one.target == other.target
    yield "its device number", one.rdev == other.rdev
    yield "its attributes", xattrs == other.xattrs


def _order(node: Node) -> tuple[int, int, int]:
    content = node.content
    if not isinstance(content, FileContent):
        return -1, 0, 0
    return content.fragment, content.offset, content.start


def _hash(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _differ(path: bytes, what: str) -> CorruptImage:
    shown = "/" + path.decode(errors="backslashreplace")
    return CorruptImage(f"{shown} was not written as it came in: {what} is another", context={"path": shown})
