# SPDX-License-Identifier: BSD-3-Clause
"""Looking into an image that is a file and not mounted: only what lies on the way to a path is read."""

from __future__ import annotations

import os
from typing import BinaryIO, Self

from kedge.formats.squashfs.reader import SquashReader
from kedge.model.tree import Node, NodeKind

_MAXIMUM_LINKS = 40  # as the kernel
_KINDS = {NodeKind.DIRECTORY: "d", NodeKind.FILE: "f"}


class SquashView:
    """The tree of a SquashFS file, or of one inside a SIF; a context manager. See `views.View`."""

    def __init__(self, file: BinaryIO, offset: int = 0, size: int | None = None) -> None:
        self._reader = SquashReader(file, offset, size)
        self._known: dict[str, Node | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._reader.close()

    def _find(self, path: str) -> Node | None:
        if path not in self._known:
            self._known[path] = self._reader.find(os.fsencode(path))
        return self._known[path]

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree; what does not exist is kept as it is."""
        left = path.split("/")[::-1]
        done: list[str] = []
        links = 0
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                done[-1:] = []
                continue
            node = self._find("/".join([*done, name]))
            if node is None or node.kind is not NodeKind.SYMLINK or links >= _MAXIMUM_LINKS:
                done.append(name)
                continue
            links += 1
            target = os.fsdecode(node.target)
            done = [] if target.startswith("/") else done
            left += target.split("/")[::-1]
        return "/" + "/".join(done)

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        node = self._find(self.resolve(path)[1:])
        return "" if node is None or node.kind is NodeKind.SYMLINK else _KINDS.get(node.kind, "c")

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """Up to `limit` bytes of a regular file; None when there is none."""
        node = self._find(self.resolve(path)[1:])
        if node is None or node.kind is not NodeKind.FILE:
            return None
        data = bytearray()
        for piece in self._reader.chunks(node):
            data += piece
            if len(data) >= offset + limit:
                break
        return bytes(data[offset : offset + limit])

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted."""
        node = self._find(self.resolve(path)[1:])
        return sorted(map(os.fsdecode, node.children)) if node is not None else []

    def is_executable(self, path: str) -> bool:
        """Whether it is a file with an execute bit."""
        node = self._find(self.resolve(path)[1:])
        return node is not None and node.kind is NodeKind.FILE and bool(node.mode & 0o111)

    def read_link(self, path: str) -> str:
        """Where a link points, without following it; empty when it is no link."""
        folder, _, name = path.rstrip("/").rpartition("/")
        node = self._find(f"{self.resolve(folder)}/{name}".lstrip("/"))
        return os.fsdecode(node.target) if node is not None and node.kind is NodeKind.SYMLINK else ""

    def can_use(self, path: str) -> bool:
        """Whether it is there: devices of an image are never used."""
        return bool(self.kind(path))
