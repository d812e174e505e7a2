# SPDX-License-Identifier: BSD-3-Clause
"""The layer that a step of copies makes, above the state it is for: where files land, and what is in the way.

The layer is a tree that begins at the image's root. A directory of the state that something is put into stands in it
with the metadata it has. Links of the state are followed inside the image, never out of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kedge.base.tree import Node, NodeKind, copy_node, find
from kedge.builds.copies.copy_attributes import ROOT, Owner
from kedge.builds.states.merged_view import MergedView
from kedge.builds.step_values import RecipePlace, refuse_recipe
from kedge.image.layers.whiteouts import WHITEOUT_PREFIX
from kedge.system.views import follow_links

_NEW_DIRECTORY = 0o755


@dataclass(slots=True)
class CopyLayer:
    """A layer in the making, and the state below it."""

    view: MergedView
    place: RecipePlace
    owner: Owner = ROOT  # of directories that are made
    mtime: int = 0  # of directories that are made
    root: Node = field(default_factory=lambda: Node(NodeKind.DIRECTORY, _NEW_DIRECTORY))

    def __post_init__(self) -> None:
        entry = self.view.find("/")
        known = self.view.make_node("/", entry) if entry is not None else None
        if known is not None:
            self.root = known

    # -- what is there

    def find(self, path: str) -> Node | None:
        """What stands at a path, in the layer or below it, links not followed."""
        node = find(self.root, os.fsencode(path))
        if node is not None:
            return node
        parts = path.strip("/").split("/")
        for count in range(1, len(parts)):
            above = find(self.root, os.fsencode("/".join(parts[:count])))
            if above is None:
                break
            if above.kind is not NodeKind.DIRECTORY:
                return None
        entry = self.view.find(path)
        return self.view.make_node(path, entry) if entry is not None else None

    def resolve(self, path: str) -> str:
        """The path with links followed inside the image."""
        try:
            return follow_links(path, self._read_target)
        except OSError as problem:
            raise refuse_recipe(self.place, f"{path}: its links go in a circle in the image") from problem

    def _read_target(self, path: str) -> str | None:
        node = self.find(path)
        return os.fsdecode(node.target) if node is not None and node.kind is NodeKind.SYMLINK else None

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at a path without links."""
        node = self.find(path)
        return node is not None and node.kind is NodeKind.DIRECTORY

    # -- changes

    def make_directory(self, path: str) -> Node:
        """The directory at a path without links, with those above it; what is missing is made with mode 0755."""
        folder, done = self.root, ""
        for name in path.strip("/").split("/") if path.strip("/") else ():
            done = f"{done}/{name}"
            folder = self._step_into(folder, done, os.fsencode(name))
        return folder

    def _step_into(self, folder: Node, path: str, name: bytes) -> Node:
        child = folder.children.get(name)
        if child is None:
            known = self.find(path)
            child = Node(NodeKind.DIRECTORY, _NEW_DIRECTORY, self.owner.uid, self.owner.gid, self.mtime)
            child = child if known is None else known
            self._refuse_odd_name(name)
            if child.kind is NodeKind.DIRECTORY:
                folder.children[name] = child
        if child.kind is not NodeKind.DIRECTORY:
            raise refuse_recipe(self.place, f"{path} is not a directory in the image")
        return child

    def put(self, path: str, node: Node) -> None:
        """A file at a path whose parents have no links, in place of another one; a directory in its way is an error."""
        parent, _, name = path.rpartition("/")
        known = self.find(path)
        if known is not None and known.kind is NodeKind.DIRECTORY:
            raise refuse_recipe(
                self.place,
                f"{path} is a directory in the image, and a file would replace it",
                "name another destination; one that ends with a slash puts the file into the directory",
            )
        self._refuse_odd_name(os.fsencode(name))
        self.make_directory(parent).children[os.fsencode(name)] = node

    def merge(self, path: str, tree: Node, *, overwrites: bool) -> None:
        """The contents of a directory into the one at `path`, which is made if it is missing.

        Directories below keep or, with `overwrites`, change the metadata that they have in the image.
        """
        self.make_directory(path)
        pending = [(path, tree)]
        while pending:
            folder, node = pending.pop()
            for name, child in node.sorted_children():
                place = f"{folder.rstrip('/')}/{os.fsdecode(name)}"
                if child.kind is not NodeKind.DIRECTORY:
                    self.put(place, child)
                    continue
                place = self._enter(place, name, child, overwrites=overwrites)
                pending.append((place, child))

    def _enter(self, path: str, name: bytes, source: Node, *, overwrites: bool) -> str:
        """Where a directory of the source lands: a link to a directory is followed, as the image's own files do."""
        known = self.find(path)
        if known is not None and known.kind is NodeKind.SYMLINK:
            target = self.resolve(path)
            if self.is_directory(target):
                path, known = target, self.find(target)
        if known is None:
            self._refuse_odd_name(name)
            parent = self.make_directory(path.rpartition("/")[0])
            parent.children[os.fsencode(path.rpartition("/")[2])] = copy_node(source)
            return path
        if known.kind is not NodeKind.DIRECTORY:
            raise refuse_recipe(
                self.place,
                f"{path} is no directory in the image, and a directory would replace it",
                "name another place",
            )
        folder = self.make_directory(path)
        if overwrites:
            folder.mode, folder.uid, folder.gid = source.mode, source.uid, source.gid
            folder.mtime, folder.nanoseconds, folder.xattrs = source.mtime, source.nanoseconds, source.xattrs
        return path

    def _refuse_odd_name(self, name: bytes) -> None:
        if name.startswith(WHITEOUT_PREFIX):
            raise refuse_recipe(
                self.place,
                f"'{os.fsdecode(name)}' cannot be stored in a layer: names that begin with '.wh.' mark deleted files",
                "rename the file, or leave it out with --exclude or .dockerignore",
            )
