# SPDX-License-Identifier: BSD-3-Clause
"""Reads whole layers for who asks what is in them: every file with a fingerprint, also those that a higher layer hides.

`flatten` keeps the contents that show; here contents are not kept, but for small files that a caller wants to read.
A layer that two images share is read once and can be assembled into both trees.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from kedge.base.progress import Task
from kedge.base.tree import Buffer, Node, NodeKind
from kedge.image.layers.assemble import Assembler
from kedge.image.layers.flatten import make_node
from kedge.image.layers.layer_source import LayerSource, inflate_layer
from kedge.image.layers.limits import Ledger
from kedge.image.layers.piece_feed import PieceFeed
from kedge.image.layers.tar_reader import Member, TarReader
from kedge.image.layers.whiteouts import RESERVED_PREFIX, WHITEOUT_PREFIX, Entries, HardLink, LayerRecord

_LARGEST_KEPT = 512 << 20
_REPORT = 256  # members between two reports of progress


class Fingerprint:
    """A digest of a file's contents, and the contents themselves where they were wanted."""

    __slots__ = ("data", "digest")

    def __init__(self, digest: bytes, data: bytes | None = None) -> None:
        self.digest = digest
        self.data = data


class FingerprintSink:
    """Takes contents and keeps their fingerprints; while `keeps` is set, also the bytes."""

    def __init__(self) -> None:
        self.keeps = False

    def add(self, data: Buffer) -> Fingerprint:
        """Take a whole file."""
        return Fingerprint(hashlib.blake2b(data, digest_size=16).digest(), bytes(data) if self.keeps else None)

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> Fingerprint:
        """Take a file piece by piece."""
        hasher, kept = hashlib.blake2b(digest_size=16), bytearray()
        keeps = self.keeps and size <= _LARGEST_KEPT
        for chunk in chunks:
            hasher.update(chunk)
            if keeps:
                kept += chunk
        return Fingerprint(hasher.digest(), bytes(kept) if keeps else None)

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The contents that were kept; nothing of all others."""
        if isinstance(node.content, Fingerprint) and node.content.data:
            yield node.content.data


def survey_layer(
    layer: LayerSource, index: int, ledger: Ledger, keeps: Callable[[bytes], bool], task: Task
) -> LayerRecord:
    """Read all members of a layer; files have a `Fingerprint` as content, with the bytes where `keeps(path)`."""
    record, sink = LayerRecord(index, layer.name), FingerprintSink()
    pieces = inflate_layer(layer, ledger, verify=ledger.options.verify_diff_ids)
    with closing(PieceFeed(pieces, threaded=ledger.options.threaded)) as feed:
        reader = TarReader(feed, f"layer {layer.name}", ledger)
        for ordinal, member in enumerate(reader):
            sink.keeps = member.kind is NodeKind.FILE and keeps(member.path)
            _take(record, reader, member, sink)
            if ordinal % _REPORT == _REPORT - 1:
                task.advance(_REPORT)
        feed.drain()
    return record


def _take(record: LayerRecord, reader: TarReader, member: Member, sink: FingerprintSink) -> None:
    if member.name.startswith(WHITEOUT_PREFIX):
        record.note_whiteout(member.parent, member.name)
    elif member.kind is None:
        record.entries.add(member.parent, member.name, HardLink(member.target))
    else:
        node = make_node(member, member.kind)
        node.layer = record.index
        if member.kind is NodeKind.FILE:
            node.content = reader.store(sink)
        record.entries.add(member.parent, member.name, node)


def assemble_records(records: Sequence[LayerRecord], ledger: Ledger) -> Node:
    """The tree of these layers, lowest first; it is made of the records' own nodes."""
    assembler = Assembler(ledger)
    for record in records:
        assembler.apply(record)
    for name in [name for name in assembler.root.children if name.startswith(RESERVED_PREFIX)]:
        del assembler.root.children[name]
    return assembler.root


def copy_record(record: LayerRecord, index: int) -> LayerRecord:
    """Return a copy of a layer's record for another tree; contents are shared."""
    entries = Entries()
    for parent, name, item in record.entries:
        entries.add(parent, name, _copy_item(item, index))
    return LayerRecord(index, record.name, entries, record.whiteouts, record.opaques)


def _copy_item(item: Node | HardLink, index: int) -> Node | HardLink:
    if isinstance(item, HardLink):
        return item
    node = copy.copy(item)
    node.layer = index
    if node.kind is NodeKind.DIRECTORY:
        node.children = {}
    return node
