# SPDX-License-Identifier: BSD-3-Clause
"""Owners and modes that an unpacked image does not have: collected, written, read, and given back to changed files."""

from __future__ import annotations

import pytest

from kedge.layers.owners import OwnerTable, RecordedOwner, collect_owners
from kedge.layers.unpack_squashfs import usable_mode
from kedge.model.tree import Node, NodeKind

ODD = b"odd \n\xff name"


def make_tree() -> Node:
    root = Node(NodeKind.DIRECTORY, 0o555)
    root.children = {
        b"plain": Node(NodeKind.FILE, 0o644),
        b"mail": Node(NodeKind.DIRECTORY, 0o2775, 0, 8),
        b"su": Node(NodeKind.FILE, 0o4755),
        b"shadow": Node(NodeKind.FILE, 0, 0, 42),
        b"link": Node(NodeKind.SYMLINK, 0o777),
        ODD: Node(NodeKind.FILE, 0o600, 1000, 4_000_000_000),
    }
    return root


def test_owners_only_what_a_node_does_not_keep_is_recorded() -> None:
    table = collect_owners(make_tree())
    assert len(table) == 4
    assert table.find(b"plain") is None
    assert table.find(b"link") is None
    assert table.find(b"su") == RecordedOwner(0, 0, 0o4755)
    assert table.list_numbers() == {b"mail": (0, 8), b"shadow": (0, 42), ODD: (1000, 4_000_000_000)}


def test_owners_survive_their_file() -> None:
    table = collect_owners(make_tree())
    assert OwnerTable.decode(table.encode()).encode() == table.encode()
    assert OwnerTable.decode(table.encode()).find(ODD) == RecordedOwner(1000, 4_000_000_000, 0o600)
    assert OwnerTable().encode() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no table",
        b"kedge owners 1\0" + b"0 0 644 cut",
        b"kedge owners 1\0x 0 644 a\0",
        b"kedge owners 1\0" + b"0 0 99 a\0",
        b"kedge owners 1\0" + b"-1 0 644 a\0",
        b"kedge owners 1\0" + b"4294967295 0 644 a\0",
        b"kedge owners 1\0" + b"0 0 77777 a\0",
        b"kedge owners 1\0" + b"1" * 5000 + b" 0 644 a\0",
    ],
)
def test_owners_a_damaged_table_is_an_empty_one(data: bytes) -> None:
    assert len(OwnerTable.decode(data)) == 0


def test_owners_a_changed_file_keeps_owner_and_mode() -> None:
    table = collect_owners(make_tree())
    su = make_tree().children[b"su"]
    su.mode = usable_mode(su)
    table.restore(b"su", su, has_owner=False)
    assert su.mode == 0o4755
    shadow = Node(NodeKind.FILE, 0o640)
    table.restore(b"shadow", shadow, has_owner=False)
    assert (shadow.mode, shadow.uid, shadow.gid) == (0o640, 0, 42), "a mode that was changed stays"


def test_owners_that_are_real_stay() -> None:
    node = Node(NodeKind.FILE, 0o400, 7, 7)
    collect_owners(make_tree()).restore(b"shadow", node, has_owner=True)
    assert (node.mode, node.uid, node.gid) == (0, 7, 7)
