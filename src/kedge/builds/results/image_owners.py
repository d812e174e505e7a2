# SPDX-License-Identifier: BSD-3-Clause
"""The owners that files of an image have: a changed file keeps its own, although one user made all changes.

Only images whose tree can be read at once are asked: SIF and SquashFS files. Layers would have to be read whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kedge.base.reference import Reference
from kedge.base.tree import Node, find
from kedge.image.layers.owners import OwnerLookup, OwnerTable
from kedge.image.layers.privileges import make_mode_usable
from kedge.image.sources.classify import SourceKind, classify
from kedge.image.sources.image_source import TreeImage
from kedge.image.sources.open_local import open_any_image
from kedge.image.workplace import Workplace


class TreeOwners:
    """Owners by path, from the tree of an image."""

    def __init__(self, root: Node) -> None:
        self._root = root

    def restore(self, path: bytes, node: Node, *, has_owner: bool) -> None:
        """Give a changed file the owner that its path had, unless it has one, and its mode if that was not changed."""
        before = find(self._root, path)
        if before is None or before.kind is not node.kind:
            return
        if not has_owner:
            node.uid, node.gid = before.uid, before.gid
        if node.mode == make_mode_usable(before.kind, before.mode):
            node.mode = before.mode


@contextlib.contextmanager
def open_owners(base: str, workplace: Workplace) -> Iterator[OwnerLookup]:
    """The owners of a base, where they can be had without reading it whole; else none are known."""
    reference = Reference.parse(base)
    if classify(reference).kind not in (SourceKind.SIF_FILE, SourceKind.SQUASHFS_FILE):
        yield OwnerTable()
        return
    image = open_any_image(reference, workplace)
    try:
        yield TreeOwners(image.root) if isinstance(image, TreeImage) else OwnerTable()
    finally:
        image.close()
