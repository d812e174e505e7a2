# SPDX-License-Identifier: BSD-3-Clause
"""What a layer names, in the order of its tar: files, directories, links and hard links."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kedge.base.tree import Node


@dataclass(frozen=True, slots=True)
class HardLink:
    """Another name for the file at `target`, a path from the image's root."""

    target: bytes


Entry = tuple[bytes, bytes, Node | HardLink]  # parent, name, what is there


@dataclass(frozen=True, slots=True)
class Run:
    """Entries of one directory that follow each other in a layer."""

    parent: bytes
    names: list[bytes]
    items: list[Node | HardLink]


class Entries:
    """The entries of a layer in their order. Kept as columns, because there may be millions; given back as runs."""

    __slots__ = ("_items", "_names", "_parents", "_starts")

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._items: list[Node | HardLink] = []
        self._parents: list[bytes] = []  # by run, as the next
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Entry]:
        for run in self.runs():
            for name, item in zip(run.names, run.items, strict=True):
                yield run.parent, name, item

    def add(self, parent: bytes, name: bytes, item: Node | HardLink) -> None:
        """Take one entry of any kind."""
        self._begin(parent)
        self._names.append(name)
        self._items.append(item)

    def add_files(self, parent: bytes, names: list[bytes], nodes: list[Node]) -> None:
        """Take regular files of one directory."""
        self._begin(parent)
        self._names += names
        self._items += nodes

    def _begin(self, parent: bytes) -> None:
        if not self._parents or parent != self._parents[-1]:
            self._parents.append(parent)
            self._starts.append(len(self._names))

    def runs(self) -> Iterator[Run]:
        """Yield all entries, those of one directory together as long as no other comes between."""
        bounds = pairwise((*self._starts, len(self._names)))
        for parent, (start, end) in zip(self._parents, bounds, strict=True):
            yield Run(parent, self._names[start:end], self._items[start:end])
