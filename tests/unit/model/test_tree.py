# SPDX-License-Identifier: BSD-3-Clause
"""Nodes made by columns are those that the constructor makes."""

from __future__ import annotations

from kedge.model.tree import Node, NodeKind, make_files


def test_files_made_by_columns_have_all_that_single_ones_have() -> None:
    made = make_files([(0o4755, 5, 7), (0o600, 0, 0)], [11, -3], [100, 0], ["token", None], 4)
    for node, (mode, uid, gid, mtime, size, content) in zip(
        made, [(0o4755, 5, 7, 11, 100, "token"), (0o600, 0, 0, -3, 0, None)], strict=True
    ):
        single = Node(NodeKind.FILE, mode, uid, gid, mtime)
        single.size, single.content, single.layer = size, content, 4
        slots = type(single).__slots__
        assert {name: getattr(node, name) for name in slots} == {name: getattr(single, name) for name in slots}
        assert node.children is single.children
