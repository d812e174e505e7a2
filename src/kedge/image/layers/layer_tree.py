# SPDX-License-Identifier: BSD-3-Clause
"""One layer as a tree that still says what it deletes: the value between a tar, an overlay's directory and a plain one.

A deletion is a character device 0:0, and a directory that hides what is below it has `OPAQUE_MARK`, as in an upper
directory of the kernel's overlay. Such marks in the layer itself are not believed: devices of that number and
attributes of overlays are taken out of it first.
"""

from __future__ import annotations

from contextlib import closing

from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.image.layers.assemble import Assembler
from kedge.image.layers.flatten import LayerReading
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.layers_ahead import LayersAhead
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.whiteouts import OPAQUE_MARK, Cover, LayerRecord, is_opaque

OVERLAY_PREFIXES = (b"user.overlay.", b"trusted.overlay.", b"user.fuseoverlayfs.")


def read_layer_tree(layer: LayerSource, sink: ContentSink, options: FlattenOptions | None = None) -> Node:
    """The tree of one layer whose contents are in `sink`; read as warily as `flatten` does.

    Directories that the layer does not name, but what is in them, have -1 as `layer`.
    """
    ledger = Ledger(options or FlattenOptions())
    task = ledger.options.progress.task("reading a layer", None, "files")
    with closing(LayersAhead([layer], ledger)) as ahead, ahead.next_feed() as feed:
        record = LayerReading(layer, 0, Cover(), sink).run(feed, ledger, task)
    task.finish()
    whiteouts, opaques = record.whiteouts, record.opaques
    assembler = Assembler(ledger)
    assembler.apply(LayerRecord(record.index, record.name, record.entries))
    root = assembler.root
    _distrust(root)
    for path in opaques:
        folder = _reach(root, path)
        if folder is not None:
            folder.xattrs = (*folder.xattrs, OPAQUE_MARK)
    for parent, name in whiteouts:
        folder = _reach(root, parent)
        if folder is not None:
            _mark_deleted(folder, name)
    return root


def is_whiteout(node: Node) -> bool:
    """Whether the node says that something is deleted."""
    return node.kind is NodeKind.CHARACTER_DEVICE and node.rdev == 0


def strip_marks(node: Node) -> None:
    """Take away the attributes that mean something to overlays."""
    if node.xattrs:
        node.xattrs = tuple(pair for pair in node.xattrs if not pair[0].startswith(OVERLAY_PREFIXES))


def _distrust(root: Node) -> None:
    for _, node in [(b"", root), *walk(root)]:
        if is_whiteout(node):
            node.kind = NodeKind.FILE  # an empty file, as all devices become that a user unpacks
        strip_marks(node)


def _mark_deleted(folder: Node, name: bytes) -> None:
    """The layer's own file of that name is not deleted, but nothing of a lower directory shows in its own."""
    own = folder.children.get(name)
    if own is None:
        folder.children[name] = Node(NodeKind.CHARACTER_DEVICE, 0o600)
    elif own.kind is NodeKind.DIRECTORY and not is_opaque(own):
        own.xattrs = (*own.xattrs, OPAQUE_MARK)


def _reach(root: Node, path: bytes) -> Node | None:
    """The directory at a path, made where it is missing; None where the layer has something else there."""
    folder = root
    for part in path.split(b"/") if path else ():
        child = folder.children.get(part)
        if child is None:
            child = folder.children[part] = Node(NodeKind.DIRECTORY)
            child.layer = -1
        if child.kind is not NodeKind.DIRECTORY:
            return None
        folder = child
    return folder


def find_implied(root: Node) -> bytes | None:
    """The first directory that the layer does not name itself; None when it names all."""
    return next((path for path, node in walk(root) if node.layer < 0), None)
