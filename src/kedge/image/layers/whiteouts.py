# SPDX-License-Identifier: BSD-3-Clause
"""Whiteouts, and what the layers read so far hide of the layers below them.

`Cover` answers by name only, without following symbolic links: it decides which contents are worth storing while
layers stream by, top layer first. The tree itself is put together in `assemble`, which has the last word.
Specification: https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from kedge.base.tree import Node, NodeKind

# What a layer names, in the order of its tar: files, directories, links and hard links.


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


WHITEOUT_PREFIX = b".wh."
OPAQUE_NAME = b".wh..wh..opq"
OPAQUE_MARK = (b"user.overlay.opaque", b"y")  # the same as an attribute of the directory
RESERVED_PREFIX = b".wh..wh."  # aufs kept its own files under such names; they are no content


@dataclass(slots=True)
class LayerRecord:
    """What one layer says, in the order of its tar."""

    index: int
    name: str
    entries: Entries = field(default_factory=Entries)
    whiteouts: list[tuple[bytes, bytes]] = field(default_factory=list)  # parent, name
    opaques: list[bytes] = field(default_factory=list)
    skipped: list[tuple[int, Node]] = field(default_factory=list)  # ordinals of files whose content was not stored

    def note_whiteout(self, parent: bytes, name: bytes) -> None:
        """Take note of a `.wh.` member; names reserved by aufs and a whiteout of nothing say nothing."""
        if name == OPAQUE_NAME:
            self.opaques.append(parent)
        elif not name.startswith(RESERVED_PREFIX) and name not in (b".wh.", b".wh..", b".wh..."):
            self.whiteouts.append((parent, name[len(WHITEOUT_PREFIX) :]))


class Above:
    """One directory as the layers above know it: names that are taken, and whether anything lower shows through."""

    __slots__ = ("names", "opaque")

    def __init__(self, *, opaque: bool = False) -> None:
        self.names: dict[bytes, Above | None] = {}  # None: no directory, or whited out; hides all below
        self.opaque = opaque


_HIDDEN = Above(opaque=True)
_UNKNOWN = Above()


class Cover:
    """Everything the layers above take or hide."""

    def __init__(self) -> None:
        self._root = Above()

    def find(self, parent: bytes) -> Above:
        """The directory at `parent`: an opaque one if it is hidden, an empty one if no layer above knows it."""
        above = self._root
        for part in parent.split(b"/") if parent else ():
            if above.opaque:
                return _HIDDEN
            child = above.names.get(part, _UNKNOWN)
            if child is None:
                return _HIDDEN
            if child is _UNKNOWN:
                return _UNKNOWN
            above = child
        return above

    def absorb(self, record: LayerRecord) -> None:
        """Add a layer, once all of it is read: its whiteouts hide what is in lower layers only."""
        for run in record.entries.runs():
            above = self._open(run.parent)
            if above is not None:
                _take_names(above, run)
        for parent, name in record.whiteouts:
            above = self._open(parent)
            if above is not None:
                _hide(above, name)
        for parent in record.opaques:
            above = self._open(parent)
            if above is not None:
                above.opaque = True

    def _open(self, parent: bytes) -> Above | None:
        """The directory to note names in, made where it is missing; None when it is hidden already."""
        above = self._root
        for part in parent.split(b"/") if parent else ():
            if above.opaque:
                return None
            child = above.names.setdefault(part, _UNKNOWN)
            if child is _UNKNOWN:
                child = above.names[part] = Above()
            if child is None:
                return None
            above = child
        return None if above.opaque else above


def is_opaque(node: Node) -> bool:
    """Whether a directory is marked to hide all that lower layers have in it."""
    return OPAQUE_MARK in node.xattrs


def _take_names(above: Above, run: Run) -> None:
    for name, item in zip(run.names, run.items, strict=True):
        if not name:
            continue
        if type(item) is Node and item.kind is NodeKind.DIRECTORY:
            above.names.setdefault(name, Above())
        else:
            _hide(above, name)


def _hide(above: Above, name: bytes) -> None:
    folder = above.names.setdefault(name, None)
    if folder is not None:
        folder.opaque = True  # a higher layer has a directory here: its own names stay, nothing lower is added
