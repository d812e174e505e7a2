# SPDX-License-Identifier: BSD-3-Clause
"""One layer, inflated and packed by a process of its own: gzip or zstd comes in, parcels go out.

Which of a layer's files show is decided by the layers above it, which are read first. Inflating and compressing need
not wait for that: blocks of large files are compressed at once, and all else of the tar is passed on as it is. Some of
it may be hidden in the end, and was compressed for nothing.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.tree import Buffer, NodeKind
from kedge.image.formats.compression.blocks import BlockCodec, checksum, open_codec
from kedge.image.formats.squashfs.compress_pipeline import choose_stored, is_hole
from kedge.image.layers.layer_source import LayerSource, inflate_layer
from kedge.image.layers.limits import FlattenOptions, Ledger
from kedge.image.layers.parcels import Parcel, ParcelSender
from kedge.image.layers.piece_feed import PieceFeed
from kedge.image.layers.tar_reader import TarReader

_UNIT = 2 << 20  # bytes that are compressed together
_CHUNK = 1 << 20


@frozen
class PackRequest:
    """What the process is to do."""

    name: str
    diff_id: str  # empty where it is not to be verified
    codec: str  # empty: nothing is packed, the tar is sent as it is
    block_size: int
    threads: int  # that compress
    limits: dict[str, Any]  # of `FlattenOptions`


def pack_layer(request: PackRequest, given: int, sender: ParcelSender) -> None:
    """Read the layer from an open file and send parcels; errors are sent too."""
    try:
        ledger = Ledger(replace(FlattenOptions(), **request.limits))
        diff_id = Digest.parse(request.diff_id) if request.diff_id else None
        layer = LayerSource(request.name, None, diff_id, lambda: _read(given))
        inflated = inflate_layer(layer, ledger, verify=diff_id is not None, is_apart=True)
        with closing(PieceFeed(inflated, threaded=True)) as feed, ThreadPoolExecutor(request.threads) as pool:
            _Packer(request, ledger, sender, pool).run(feed)
        sender.end()
    except BrokenPipeError:
        return  # nobody wants it any more
    except BaseException as problem:
        with suppress(BrokenPipeError):
            sender.fail(problem)


def _read(given: int) -> Iterator[bytes]:
    while chunk := os.read(given, _CHUNK):
        yield chunk


class _Unit:
    """Parts of the tar in their order: bytes, or the blocks of a file."""

    def __init__(self) -> None:
        self.parts: list[Buffer | _Blocks] = []
        self.weight = 0


class _Blocks:
    """Blocks of one file that are compressed together."""

    def __init__(self) -> None:
        self.size = 0
        self.views: list[memoryview] = []


class _Packer:
    """Walks along the tar; a sink for contents of large files, which are diverted into blocks."""

    def __init__(self, request: PackRequest, ledger: Ledger, sender: ParcelSender, pool: ThreadPoolExecutor) -> None:
        self._name = f"layer {request.name}"
        self._ledger = ledger
        self._sender = sender
        self._pool = pool
        self._block = request.block_size
        self._codec = open_codec(request.codec) if request.codec else None
        self._zeros = bytes(self._block)
        self._at_once = request.threads + 2
        self._under_way: deque[Future[Parcel]] = deque()
        self._unit = _Unit()
        self._parcel = Parcel()
        self._told = 0  # bytes inflated that the reader knows of
        self._view = memoryview(b"")
        self._passed = 0  # up to here the piece in hand went its way
        self._is_diverting = False

    def run(self, feed: PieceFeed) -> None:
        """Send all of the layer."""
        tape = self._tape(feed)
        if self._codec is not None:
            self._walk(TarReader(tape, self._name, self._ledger))
        for _ in tape:  # to its end, which verifies the digest
            pass
        self._close_unit()
        while self._under_way:
            self._send()
        self._send_parcel()

    def _walk(self, reader: TarReader) -> None:
        for member in reader:
            if member.kind is NodeKind.FILE and reader.plain_size >= self._block:
                self._divert(reader)
            while run := reader.read_plain_files():
                for start, size in zip(run.starts, run.sizes, strict=True):
                    if size >= self._block:
                        self._pass_on(start)
                        self.add(self._view[start : start + size])
                        self._passed = start + size

    def _divert(self, reader: TarReader) -> None:
        self._pass_on(reader.place)
        self._is_diverting = True
        reader.store(self)
        self._is_diverting = False
        self._passed = reader.place

    def _tape(self, feed: PieceFeed) -> Iterator[bytes]:
        """The pieces for the reader; whatever of one was not diverted is passed on before the next."""
        for piece in feed:
            assert isinstance(piece, bytes)  # nobody has packed anything yet
            self._view, self._passed = memoryview(piece), 0
            yield piece
            if not self._is_diverting:
                self._pass_on(len(piece))
        self._view, self._passed = memoryview(b""), 0

    def _pass_on(self, end: int) -> None:
        if end > self._passed:
            part = self._view[self._passed : end]
            self._unit.parts.append(part)
            self._weigh(len(part))
        self._passed = end

    def add(self, data: Buffer) -> object:
        """A whole file."""
        return self.add_stream(len(data), (data,))

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """A file in slices of pieces, which never change."""
        capacity, rest, blocks = self._block, bytearray(), _Blocks()
        for chunk in chunks:
            view = memoryview(chunk)
            if rest:
                cut = capacity - len(rest)
                rest += view[:cut]
                view = view[cut:]
                if len(rest) < capacity:
                    continue
                blocks = self._put(blocks, memoryview(rest))
                rest = bytearray()
            whole = len(view) - len(view) % capacity
            for start in range(0, whole, capacity):
                blocks = self._put(blocks, view[start : start + capacity])
            rest += view[whole:]
        if rest:
            self._put(blocks, memoryview(rest))
        return size

    def _put(self, blocks: _Blocks, view: memoryview) -> _Blocks:
        """Take the next block of a file; returns what the one after it belongs to."""
        if not blocks.views:
            self._unit.parts.append(blocks)
        blocks.views.append(view)
        blocks.size += len(view)
        return _Blocks() if self._weigh(len(view)) else blocks

    def _weigh(self, size: int) -> bool:
        self._unit.weight += size
        if self._unit.weight < _UNIT:
            return False
        self._close_unit()
        return True

    def _close_unit(self) -> None:
        unit, self._unit = self._unit, _Unit()
        if unit.parts:
            self._under_way.append(self._submit(unit))
        while self._under_way and (len(self._under_way) > self._at_once or self._under_way[0].done()):
            self._send()

    def _submit(self, unit: _Unit) -> Future[Parcel]:
        try:
            return self._pool.submit(_pack, unit, self._codec, self._zeros)
        except RuntimeError:  # no thread may be started here
            done: Future[Parcel] = Future()
            done.set_result(_pack(unit, self._codec, self._zeros))
            return done

    def _send(self) -> None:
        packed = self._under_way.popleft().result()
        if not self._parcel.has_room(packed):
            self._send_parcel()
        self._parcel.append(packed)

    def _send_parcel(self) -> None:
        inflated, self._told = self._ledger.inflated - self._told, self._ledger.inflated
        self._sender.send(self._parcel, inflated)
        self._parcel = Parcel()


def _pack(unit: _Unit, codec: BlockCodec | None, zeros: bytes) -> Parcel:
    """Compress the blocks of a unit in one call, and return what to send of it."""
    wanted = [
        view for part in unit.parts if isinstance(part, _Blocks) for view in part.views if not is_hole(view, zeros)
    ]
    packed = iter(codec.compress_blocks(wanted) if codec is not None else ())
    parcel = Parcel()
    for part in unit.parts:
        if isinstance(part, _Blocks):
            blocks = [(0, view) if is_hole(view, zeros) else choose_stored(view, next(packed)) for view in part.views]
            parcel.add_blocks(part.size, checksum(part.views[0]), blocks)
        else:
            parcel.add_bytes(part)
    return parcel
