# SPDX-License-Identifier: BSD-3-Clause
"""The layer that a step of copies makes, above the state it is for: where files land, and what is in the way.

The layer is a tree that begins at the image's root. A directory of the state that something is put into stands in it
with the metadata it has. Links of the state are followed inside the image, never out of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.base.tree import Node, NodeKind, copy_node, find
from kedge.builds.copies.copy_attributes import ROOT, Owner, find_owner
from kedge.builds.definition.settle_files import settle_files
from kedge.builds.states.merged_view import MergedView
from kedge.builds.step_values import DirectoryStep, RecipePlace, WriteFilesStep, refuse_recipe
from kedge.image.formats.singularityd.documents import format_build_date
from kedge.image.layers.upper_directory import make_whiteout
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


# Layers that run no program and copy no file: directories of WORKDIR, and what a definition file says of its image.

_MAXIMUM_FILE = 16 << 20  # bytes of a file that is merged with


def make_directory_layer(step: DirectoryStep, view: MergedView, mtime: int) -> Node:
    """The tree of a layer that makes a directory; an empty one where it is there already."""
    owner = find_owner(step.user, view, step.place) if step.user else Owner()
    layer = CopyLayer(view, step.place, owner, mtime)
    path = layer.resolve(step.path)
    if layer.is_directory(path):
        return Node(NodeKind.DIRECTORY)
    layer.make_directory(path)
    return layer.root


def write_files_layer(step: WriteFilesStep, view: MergedView, mtime: int, *, base: tuple[str, str] = ("", "")) -> Node:
    """The tree of a layer with the files, directories and links of a definition file.

    `base` is its reference and its digest. Where it has no reference it is empty, and what its view has are mount
    points that no layer holds.
    """
    layer = CopyLayer(view, step.place, Owner(), mtime)
    from_nothing = not base[0]
    settled = settle_files(_add_origin(step, mtime, *base), lambda path: view.read(path, _MAXIMUM_FILE))
    for path in step.directories:
        if from_nothing or layer.find(path) is None:
            layer.make_directory(layer.resolve(path))
    for file in settled.files:
        node = Node(NodeKind.FILE, file.mode, mtime=mtime)
        node.size, node.content = len(file.data), file.data or None
        layer.put(_resolve_parent(layer, file.path), node)
    for name, target in step.links:
        _put_link(layer, name, target, mtime)
    for path in settled.removed:
        _remove(layer, path)
    return layer.root


def _add_origin(step: WriteFilesStep, built: int, base: str, digest: str) -> WriteFilesStep:
    """The step with labels that say when, by what and from which base the image is built."""
    automatic = {
        "org.label-schema.build-date": format_build_date(built),
        "org.label-schema.usage.kedge.version": VERSION,
    }
    if digest:  # else the labels of a base that is a file tell what that one was made from
        automatic |= {"org.opencontainers.image.base.name": base, "org.opencontainers.image.base.digest": digest}
    files = []
    for file in step.files:
        labels = json.loads(file.data) if file.way == "labels" else None
        files.append(replace(file, data=json.dumps(labels | automatic).encode()) if labels is not None else file)
    return replace(step, files=tuple(files))


def _resolve_parent(layer: CopyLayer, path: str) -> str:
    parent, _, name = path.rpartition("/")
    return f"{layer.resolve(parent or '/').rstrip('/')}/{name}"


def _put_link(layer: CopyLayer, name: str, target: str, mtime: int) -> None:
    """A symbolic link; another link is replaced, anything else is left alone."""
    place = _resolve_parent(layer, name)
    known = layer.find(place)
    if known is not None and (known.kind is not NodeKind.SYMLINK or known.target == target.encode()):
        return
    node = Node(NodeKind.SYMLINK, 0o777, mtime=mtime)
    node.target = target.encode("utf-8", "surrogateescape")
    layer.put(place, node)


def _remove(layer: CopyLayer, path: str) -> None:
    parent, _, name = _resolve_parent(layer, path).rpartition("/")
    layer.make_directory(parent).children[WHITEOUT_PREFIX + name.encode()] = make_whiteout()
