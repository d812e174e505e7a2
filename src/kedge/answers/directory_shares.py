# SPDX-License-Identifier: BSD-3-Clause
"""An image divided into directories that do not overlap: the largest is split into its parts until there are enough."""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass

from kedge.base.tree import Node, NodeKind
from kedge.compat.contents.size_report import SizeShare

_MOST_PARTS = 40
_SMALLEST_SHARE = 0.01  # of the whole: smaller ones stay together
_SPLIT_SHARE = 0.03  # larger ones are split


@dataclass(frozen=True, slots=True)
class _Measured:
    size: int
    files: int


def divide_directories(root: Node, most: int = _MOST_PARTS) -> tuple[SizeShare, ...]:
    """Parts whose sizes add up to the image, largest first; `usr/lib/…` is the rest of a directory that was split."""
    sizes = _measure(root)
    total = max(sizes[id(root)].size, 1)
    heap = [(-sizes[id(root)].size, b"", root)]
    parts: list[SizeShare] = []
    while heap and len(parts) + len(heap) < most:
        negative, path, node = heapq.heappop(heap)
        children = [
            (-sizes[id(child)].size, path + b"/" + name, child)
            for name, child in sorted(node.children.items())
            if id(child) in sizes and sizes[id(child)].size >= _SMALLEST_SHARE * total
        ]
        if not children or (-negative < _SPLIT_SHARE * total and path):
            parts.append(_make_share(path, sizes[id(node)]))
            continue
        for child in children:
            heapq.heappush(heap, child)
        rest = sizes[id(node)].size + sum(size for size, _, _ in children)
        files = sizes[id(node)].files - sum(sizes[id(child)].files for _, _, child in children)
        if rest > 0:
            parts.append(SizeShare(f"{os.fsdecode(path)}/…", rest, files))
    parts += [_make_share(path, sizes[id(node)]) for _, path, node in heap]
    return tuple(sorted(parts, key=lambda part: -part.size))


def _make_share(path: bytes, measured: _Measured) -> SizeShare:
    return SizeShare(os.fsdecode(path) or "/", measured.size, measured.files)


def _measure(root: Node) -> dict[int, _Measured]:
    """Every directory with the bytes below it, and every file; one with several names counts at the first of them."""
    sizes: dict[int, _Measured] = {}
    counted: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, is_ready = stack.pop()
        if not is_ready:
            stack.append((node, True))
            stack += [(child, False) for _, child in sorted(node.children.items()) if child.kind is NodeKind.DIRECTORY]
            continue
        size = files = 0
        for _, child in sorted(node.children.items()):
            if child.kind is NodeKind.DIRECTORY:
                size, files = size + sizes[id(child)].size, files + sizes[id(child)].files
            elif child.kind is NodeKind.FILE and id(child) not in counted:
                counted.add(id(child))
                sizes[id(child)] = _Measured(child.size, 1)
                size, files = size + child.size, files + 1
        sizes[id(node)] = _Measured(size, files)
    return sizes
