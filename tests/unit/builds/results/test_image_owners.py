# SPDX-License-Identifier: BSD-3-Clause
"""Changed files keep the owners that the image has for them."""

from __future__ import annotations

from kedge.base.tree import Node, NodeKind
from kedge.builds.commit import TreeOwners, open_owners
from kedge.image.layers.unpack_squashfs import make_mode_usable
from kedge.image.workplace import Workplace
from kedge.system.settings import Settings


def make_tree() -> Node:
    root = Node(NodeKind.DIRECTORY)
    root.children[b"data"] = Node(NodeKind.FILE, 0o040, 33, 34)
    return root


def test_owners_and_modes_of_changed_files_are_restored() -> None:
    node = Node(NodeKind.FILE, 0o644, 0, 0)
    TreeOwners(make_tree()).restore(b"data", node, has_owner=False)
    assert (node.uid, node.gid, node.mode) == (33, 34, 0o644)
    node = Node(NodeKind.FILE, make_mode_usable(NodeKind.FILE, 0o040), 0, 0)
    TreeOwners(make_tree()).restore(b"data", node, has_owner=True)
    assert (node.uid, node.mode) == (0, 0o040)
    for path, kind in ((b"new", NodeKind.FILE), (b"data", NodeKind.DIRECTORY)):
        node = Node(kind, 0o700, 5, 6)
        TreeOwners(make_tree()).restore(path, node, has_owner=False)
        assert (node.uid, node.gid, node.mode) == (5, 6, 0o700)


def test_owners_of_a_directory_are_not_asked(tmp_path) -> None:
    workplace = Workplace(Settings.load({}, {"HOME": str(tmp_path)}))
    with open_owners(str(tmp_path), workplace) as owners:
        assert not isinstance(owners, TreeOwners)
