# SPDX-License-Identifier: BSD-3-Clause
"""What a layer names, kept as columns: the order stays, and runs say when they hold regular files alone."""

from __future__ import annotations

from kedge.layers.layer_entries import Entries, HardLink
from kedge.model.tree import Node, NodeKind


def test_entries_come_back_in_their_order() -> None:
    entries = Entries()
    made = [(b"a", b"1", Node(NodeKind.FILE)), (b"a", b"d", Node(NodeKind.DIRECTORY)), (b"a/d", b"2", HardLink(b"a/1"))]
    for entry in made:
        entries.add(*entry)
    more = [Node(NodeKind.FILE), Node(NodeKind.FILE)]
    entries.add_files(b"a", [b"3", b"4"], more)
    assert list(entries) == [*made, (b"a", b"3", more[0]), (b"a", b"4", more[1])]
    assert len(entries) == 5


def test_runs_are_plain_as_long_as_all_is_files() -> None:
    entries = Entries()
    assert list(entries.runs()) == []
    entries.add_files(b"a", [b"1"], [Node(NodeKind.FILE)])
    entries.add(b"a", b"2", Node(NodeKind.FILE))
    entries.add_files(b"b", [b"1"], [Node(NodeKind.FILE)])
    entries.add(b"b", b"2", Node(NodeKind.SYMLINK))
    entries.add(b"c", b"1", HardLink(b"a/1"))
    entries.add(b"", b"", Node(NodeKind.FILE))  # the root as a file: not for a shortcut to judge
    runs = [(run.parent, run.names, run.is_plain) for run in entries.runs()]
    assert runs == [(b"a", [b"1", b"2"], True), (b"b", [b"1", b"2"], False), (b"c", [b"1"], False), (b"", [b""], False)]
