# SPDX-License-Identifier: BSD-3-Clause
"""The content of a file that another tree's source gives, so that files of several trees can stand in one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kedge.base.tree import ContentSource, Node, NodeKind, copy_node, walk


@dataclass(frozen=True, slots=True, eq=False)
class LentContent:
    """A node of another tree and what gives its bytes."""

    source: ContentSource
    node: Node

    def chunks(self) -> Iterator[bytes]:
        """The bytes."""
        return self.source.chunks(self.node)


def lend_tree(root: Node, source: ContentSource) -> None:
    """Let the files of a tree, changed in place, carry where their contents come from."""
    for node in (root, *(node for _, node in walk(root))):
        if node.kind is NodeKind.FILE and node.content is not None and not isinstance(node.content, LentContent):
            original = copy_node(node)
            original.content = node.content
            node.content = LentContent(source, original)
