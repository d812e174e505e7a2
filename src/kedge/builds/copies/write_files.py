# SPDX-License-Identifier: BSD-3-Clause
"""Layers that run no program and copy no file: directories of WORKDIR, and what a definition file says of its image."""

from __future__ import annotations

import json

from kedge.base.frozen import replace
from kedge.base.release import VERSION
from kedge.base.tree import Node, NodeKind
from kedge.builds.copies.copy_attributes import Owner, find_owner
from kedge.builds.copies.copy_layer import CopyLayer
from kedge.builds.definition.settle_files import settle_files
from kedge.builds.states.merged_view import MergedView
from kedge.builds.step_values import DirectoryStep, WriteFilesStep
from kedge.image.formats.singularityd.documents import format_build_date
from kedge.image.layers.upper_directory import make_whiteout
from kedge.image.layers.whiteouts import WHITEOUT_PREFIX

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
