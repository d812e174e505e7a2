# SPDX-License-Identifier: BSD-3-Clause
"""The files of a tree of nodes by path, links followed inside it only. See `posix.views.View`."""

from __future__ import annotations

import os
from collections.abc import Callable

from kedge.base.tree import ContentSource, Node, NodeKind
from kedge.system.views import follow_links, read_last_link

_KINDS = {NodeKind.DIRECTORY: "d", NodeKind.FILE: "f", NodeKind.SYMLINK: ""}


class TreeView:
    """A tree whose `lookup` gives the node at a path, a directory with its children, links not followed."""

    def __init__(self, lookup: Callable[[bytes], Node | None], source: ContentSource) -> None:
        self._lookup = lookup
        self._source = source
        self._nodes: dict[str, Node | None] = {}

    def resolve(self, path: str) -> str:
        """The path with all links followed inside the tree, as `follow_links` does."""
        return follow_links(path, self._read_target)

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        node = self._resolve_node(path)
        return "" if node is None else _KINDS.get(node.kind, "c")

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """Up to `limit` bytes of a regular file; None when there is none."""
        node = self._resolve_node(path)
        if node is None or node.kind is not NodeKind.FILE:
            return None
        data = bytearray()
        for piece in self._source.chunks(node) if node.size else ():
            data += piece
            if len(data) >= offset + limit:
                break
        return bytes(data[offset : offset + limit])

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        node = self._resolve_node(path)
        return sorted(map(os.fsdecode, node.children)) if node is not None else []

    def is_executable(self, path: str) -> bool:
        """Whether a path is a file with an execute bit."""
        node = self._resolve_node(path)
        return node is not None and node.kind is NodeKind.FILE and bool(node.mode & 0o111)

    def read_link(self, path: str) -> str:
        """The link's target, not followed; the empty string when it is no link."""
        return read_last_link(path, self._read_target)

    def can_use(self, path: str) -> bool:
        """Whether a path exists: devices of an image are never used."""
        return bool(self.kind(path))

    def _resolve_node(self, path: str) -> Node | None:
        try:
            return self._find(self.resolve(path))
        except OSError:  # links in a circle
            return None

    def _read_target(self, path: str) -> str | None:
        node = self._find(path)
        return os.fsdecode(node.target) if node is not None and node.kind is NodeKind.SYMLINK else None

    def _find(self, path: str) -> Node | None:
        if path not in self._nodes:
            self._nodes[path] = self._lookup(os.fsencode(path[1:]))
        return self._nodes[path]
