# SPDX-License-Identifier: BSD-3-Clause
"""Owners and modes that an unpacked image does not have: collected, written, read, and given back to changed files."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.base.tree import Node, NodeKind
from kedge.image.layers.owners import LevelOwners, OwnerTable, RecordedOwner, collect_owners
from kedge.image.layers.unpack_squashfs import usable_mode
from tests.builders.rows import each_row

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


@each_row(
    "data",
    [
        *(b"", b"no table", b"kedge owners 1\0" + b"0 0 644 cut", b"kedge owners 1\0x 0 644 a\0"),
        *(b"kedge owners 1\0" + b"0 0 99 a\0", b"kedge owners 1\0" + b"-1 0 644 a\0"),
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


def make_layer(*entries: tuple[bytes, Node]) -> Node:
    root = Node(NodeKind.DIRECTORY)
    root.layer = -1
    for path, node in entries:
        *parents, name = path.split(b"/")
        folder = root
        for part in parents:
            if part not in folder.children:
                folder.children[part] = Node(NodeKind.DIRECTORY)
                folder.children[part].layer = -1
            folder = folder.children[part]
        folder.children[name] = node
    return root


def test_owners_follow_layers() -> None:
    names = (b"a", b"a/x", b"b", b"b/x", b"c", b"c/x", b"d/x", b"e", b"f")
    table = OwnerTable({name: RecordedOwner(7, 7, None) for name in names})
    table.absorb(
        make_layer(
            (b".wh.a", Node(NodeKind.FILE)),
            (b"b/.wh..wh..opq", Node(NodeKind.FILE)),
            (b"c", Node(NodeKind.FILE, 0o644)),
            (b"e", Node(NodeKind.FILE, 0o644, 9, 9)),
            (b"new", Node(NodeKind.FILE, 0o644, 5, 6)),
        )
    )
    assert table.list_numbers() == {b"b": (7, 7), b"d/x": (7, 7), b"e": (9, 9), b"f": (7, 7), b"new": (5, 6)}


def test_owners_of_levels_are_those_of_the_topmost_that_has_the_path(tmp_path: Path) -> None:
    base, layer = tmp_path / "base", tmp_path / "layer"
    for folder in (base, layer):
        folder.mkdir()
    for name in ("both", "below", "gone"):
        (base / name).touch()
    for name in ("both", "above"):
        (layer / name).touch()
    os.mknod(layer / "gone", 0o020600, 0)
    owners = LevelOwners(
        [
            (base, OwnerTable({name: RecordedOwner(1, 1, None) for name in (b"both", b"below", b"gone")})),
            (layer, OwnerTable({b"above": RecordedOwner(2, 2, None)})),
        ]
    )
    for name, uid in ((b"both", 0), (b"below", 1), (b"gone", 0), (b"above", 2), (b"new", 0)):
        node = Node(NodeKind.FILE)
        owners.restore(name, node, has_owner=False)
        assert node.uid == uid, name


def test_owners_of_a_layer_are_recorded_without_modes() -> None:
    table = collect_owners(make_tree(), keeps_modes=True)
    assert table.find(b"su") is None
    assert OwnerTable.decode(table.encode()).find(b"mail") == RecordedOwner(0, 8, None)
