# SPDX-License-Identifier: BSD-3-Clause
"""What a layer names, kept as columns: the order stays, and neighbours come together."""

from __future__ import annotations

from kedge.base.tree import Node, NodeKind
from kedge.image.layers.whiteouts import Entries, HardLink


def test_entries_come_back_in_their_order() -> None:
    entries = Entries()
    made = [(b"a", b"1", Node(NodeKind.FILE)), (b"a", b"d", Node(NodeKind.DIRECTORY)), (b"a/d", b"2", HardLink(b"a/1"))]
    for entry in made:
        entries.add(*entry)
    more = [Node(NodeKind.FILE), Node(NodeKind.FILE)]
    entries.add_files(b"a", [b"3", b"4"], more)
    assert list(entries) == [*made, (b"a", b"3", more[0]), (b"a", b"4", more[1])]
    assert len(entries) == 5


def test_entries_of_one_directory_are_one_run() -> None:
    entries = Entries()
    assert list(entries.runs()) == []
    entries.add_files(b"a", [b"1"], [Node(NodeKind.FILE)])
    entries.add(b"a", b"2", Node(NodeKind.SYMLINK))
    entries.add(b"b", b"1", HardLink(b"a/1"))
    entries.add_files(b"a", [b"3"], [Node(NodeKind.FILE)])
    runs = [(run.parent, run.names, len(run.items)) for run in entries.runs()]
    assert runs == [(b"a", [b"1", b"2"], 2), (b"b", [b"1"], 1), (b"a", [b"3"], 1)]
