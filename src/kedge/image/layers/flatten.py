# SPDX-License-Identifier: BSD-3-Clause
"""Turns the layers of an image into one tree, reading the top layer first and keeping only contents that show.

Contents go to the sink the moment they are read, so what is hidden must be known by then: `whiteouts.Cover` tells, and
is why the order is top-down. Names and metadata of all layers are kept, and applied bottom-up at the end by `assemble`,
so the tree is what unpacking layer after layer gives. The rules stand below the imports; each has a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kedge.base.packed_blocks import PackedSink
from kedge.base.progress import Task
from kedge.base.tree import ContentSink, Node, NodeKind, walk
from kedge.errors import CorruptImage
from kedge.image.layers.assemble import Assembler
from kedge.image.layers.layer_source import LayerSource, inflate_layer
from kedge.image.layers.layers_ahead import LayersAhead
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.piece_feed import PieceFeed
from kedge.image.layers.plain_files import PlainRun
from kedge.image.layers.tar_reader import Member, TarReader
from kedge.image.layers.whiteouts import RESERVED_PREFIX, WHITEOUT_PREFIX, Above, Cover, HardLink, LayerRecord

# The rules:
#  1. A name in a higher layer hides the same name in lower ones. Two directories merge; the highest layer that names a
#     directory gives its metadata.
#  2. A directory that no layer names (an implied parent) is 0755, owner 0:0, time 0.
#  3. `.wh.NAME` and `.wh..wh..opq` hide what is in lower layers, wherever they stand in their own tar. aufs's own
#     `.wh..wh.` names are dropped, at last also its directories in the root: hard links lead into `.wh..wh.plnk`.
#  4. A file over a directory hides all below it; a directory over a file begins empty, whatever was below the file.
#  5. Within a layer the last of several equal names wins; hard links made to an earlier one keep it.
#  6. A hard link's target is looked up as the tree is at that point of that layer: in it, or in a lower one, and then
#     among what the layer itself hides.
#  7. An entry whose parent is a symbolic link (`lib/x` where lib -> usr/lib) goes where the link leads, inside the
#     root; missing directories are implied. If it leads out of the root, to a file or in a circle, the image
#     is hostile. A named directory replaces a link.
#  8. `/` and `./` name the root, `/x` and `a/../x` mean `x`; a name that leads above the root is hostile. Owners,
#     setuid bits, devices and extended attributes are kept as they are.

_SKIPPED = object()  # the content of a file that a higher layer hides
_REPORT = 256  # members between two reports of progress


def flatten(layers: Sequence[LayerSource], sink: ContentSink, options: FlattenOptions | None = None) -> Node:
    """Merge `layers` (lowest first) into one tree whose contents are in `sink`.

    Raises HostileImage, CorruptImage, UnsupportedFormat or DigestMismatch, each naming layer and path.
    """
    options = options or FlattenOptions()
    ledger = Ledger(options)
    cover = Cover()
    records: list[LayerRecord] = []
    task = options.progress.task("flattening layers", None, "files")
    packing = sink.packing if isinstance(sink, PackedSink) else None
    with closing(LayersAhead(reversed(layers), ledger, packing)) as ahead:
        for index in range(len(layers) - 1, -1, -1):
            with ahead.next_feed() as feed:
                record = LayerReading(layers[index], index, cover, sink).run(feed, ledger, task)
            records.append(record)
            if index:
                cover.absorb(record)
    del cover
    skipped = {record.index: record.skipped for record in records if record.skipped}
    assembler = Assembler(ledger)
    while records:
        assembler.apply(records.pop())
    for name in [name for name in assembler.root.children if name.startswith(RESERVED_PREFIX)]:
        del assembler.root.children[name]
    if skipped:
        _store_missing(layers, sink, skipped, assembler.root, options)
    task.finish()
    return assembler.root


class LayerReading:
    """Reads one layer: stores what shows, notes everything."""

    def __init__(self, layer: LayerSource, index: int, cover: Cover, sink: ContentSink) -> None:
        self._layer = layer
        self._cover = cover
        self._sink = sink
        self._record = LayerRecord(index, layer.name)
        self._ordinal = 0  # of the next member
        self._parent: bytes | None = None
        self._above = Above()

    def run(self, feed: PieceFeed, ledger: Ledger, task: Task) -> LayerRecord:
        """Read the whole layer and return its record."""
        reader = TarReader(feed, f"layer {self._layer.name}", ledger)
        reported = 0
        for member in reader:
            self._take(reader, member)
            self._take_plain(reader)
            if self._ordinal - reported >= _REPORT:
                task.advance(self._ordinal - reported)
                reported = self._ordinal
        task.advance(self._ordinal - reported)
        feed.drain()
        return self._record

    def _take(self, reader: TarReader, member: Member) -> None:
        parent, name = member.parent, member.name
        record, ordinal = self._record, self._ordinal
        self._ordinal += 1
        if name.startswith(WHITEOUT_PREFIX):
            record.note_whiteout(parent, name)
            return
        kind = member.kind
        if kind is None:
            record.entries.add(parent, name, HardLink(member.target))
            return
        node = make_node(member, kind)
        node.layer = record.index
        record.entries.add(parent, name, node)
        if kind is NodeKind.FILE:
            if parent != self._parent:
                self._parent, self._above = parent, self._cover.find(parent)
            if self._above.opaque or name in self._above.names:
                node.content = _SKIPPED
                record.skipped.append((ordinal, node))
            else:
                node.content = reader.store(self._sink)

    def _take_plain(self, reader: TarReader) -> None:
        """Take the plain files that follow a member: in many images all but a few."""
        while run := reader.read_plain_files():
            if run.parent != self._parent:
                self._parent, self._above = run.parent, self._cover.find(run.parent)
            nodes = self._store_plain(run, reader.piece)
            self._record.entries.add_files(run.parent, run.names, nodes)
            self._ordinal += len(nodes)

    def _store_plain(self, run: PlainRun, piece: memoryview) -> list[Node]:
        """The files of a run; the content of one that a later layer hides is not stored."""
        above, nodes = self._above, []
        columns = zip(run.names, run.identities, run.times, run.starts, run.sizes, strict=True)
        for ordinal, (name, (mode, uid, gid), mtime, start, size) in enumerate(columns, self._ordinal):
            node = Node(NodeKind.FILE, mode, uid, gid, mtime)
            node.size, node.layer = size, self._record.index
            if above.opaque or name in above.names:
                node.content = _SKIPPED
                self._record.skipped.append((ordinal, node))
            elif size:
                node.content = self._sink.add(piece[start : start + size])
            nodes.append(node)
        return nodes


def make_node(member: Member, kind: NodeKind) -> Node:
    """A node with the metadata of a tar member, its content still missing."""
    node = Node(kind, member.mode, member.uid, member.gid, member.mtime)
    node.nanoseconds, node.xattrs = member.nanoseconds, member.xattrs
    if kind is NodeKind.FILE:
        node.size = member.size
    elif kind is NodeKind.SYMLINK:
        node.target = member.target
        node.mode = 0o777  # Linux knows no other; some builders write 0 or 0755 into the tar
    else:
        node.rdev = member.rdev
    return node


def _store_missing(
    layers: Sequence[LayerSource],
    sink: ContentSink,
    skipped: dict[int, list[tuple[int, Node]]],
    root: Node,
    options: FlattenOptions,
) -> None:
    """Store hidden files that are in the tree after all, because a hard link from elsewhere keeps them alive.

    It is rare; their layers are read a second time, up to the last such file.
    """
    missing = {id(node) for _, node in walk(root) if node.content is _SKIPPED}
    for index in sorted(skipped, reverse=True):
        wanted = {ordinal: node for ordinal, node in skipped[index] if id(node) in missing}
        if wanted:
            _read_again(layers[index], sink, wanted, options)


def _read_again(layer: LayerSource, sink: ContentSink, wanted: dict[int, Node], options: FlattenOptions) -> None:
    ledger = Ledger(options)
    with closing(PieceFeed(inflate_layer(layer, ledger), threaded=options.threaded)) as feed:
        reader = TarReader(feed, f"layer {layer.name}", ledger)
        for ordinal, member in enumerate(reader):
            node = wanted.get(ordinal)
            if node is not None and node.size == member.size:
                node.content = reader.store(sink)
                del wanted[ordinal]
            if not wanted:
                return
    raise CorruptImage(f"layer {layer.name} changed between two reads", context={"layer": layer.name})
