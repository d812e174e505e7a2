# SPDX-License-Identifier: BSD-3-Clause
"""A content sink that keeps bytes in memory, and a writer of small trees into real directories."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kedge.base.tree import Buffer, Node, NodeKind, walk


class MemorySink:
    """Keeps every file; the token is the bytes."""

    def add(self, data: Buffer) -> object:
        return bytes(data)

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        data = b"".join(bytes(chunk) for chunk in chunks)
        assert len(data) == size
        return data


def write_tree(root: Node, target: Path) -> None:
    """Make the tree a directory: files with content, links, directories; hard links stay hard links."""
    target.mkdir(parents=True)
    written: dict[int, Path] = {}
    for name, node in walk(root):
        path = target / os.fsdecode(name)
        if node.kind is NodeKind.DIRECTORY:
            path.mkdir()
            path.chmod(node.mode | 0o700)
        elif node.kind is NodeKind.SYMLINK:
            path.symlink_to(os.fsdecode(node.target))
        elif id(node) in written:
            os.link(written[id(node)], path)
        else:
            assert node.kind is NodeKind.FILE
            assert isinstance(node.content, bytes | None)
            path.write_bytes(node.content or b"")
            path.chmod(node.mode)
            os.utime(path, (node.mtime, node.mtime))
            written[id(node)] = path
