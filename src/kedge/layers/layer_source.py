# SPDX-License-Identifier: BSD-3-Clause
"""Where a layer's bytes come from: opened, counted, inflated (on a thread of its own) and checked against its diff_id.

Decompressors hold no interpreter lock, so the thread's work overlaps with reading the tar; at most sixteen pieces of
512 KiB wait between the two.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator

from kedge.errors import DigestMismatch
from kedge.formats.compression import inflate
from kedge.frozen import frozen
from kedge.layers.limits import Ledger
from kedge.model.digest import Digest

_PIECE = 1 << 19
_WAITING = 16  # pieces between the thread that inflates and the one that reads
_FAREWELL = 0.2  # seconds to wait for the thread at the end; it may wait for bytes that do not come


@frozen
class LayerSource:
    """One layer: a name for messages, its digests where known, and how to get its compressed bytes.

    `open` may be called twice: when a hard link keeps alive what a higher layer hides, the layer is read again.
    """

    name: str
    digest: Digest | None
    diff_id: Digest | None
    open: Callable[[], Iterator[bytes]]


def inflate_layer(layer: LayerSource, ledger: Ledger, *, verify: bool = False) -> Iterator[bytes]:
    """The layer's tar in pieces, charged to `ledger`; with `verify` its digest is compared at the end."""
    where = f"layer {layer.name}"
    hasher = hashlib.new(layer.diff_id.algorithm) if verify and layer.diff_id else None
    compressed = layer.open()
    try:
        for piece in inflate(_count(compressed, ledger), where=where, piece=_PIECE):
            ledger.charge_inflated(len(piece), where)
            if hasher is not None:
                hasher.update(piece)
            yield piece
    finally:
        close = getattr(compressed, "close", None)
        if close is not None:
            close()
    if hasher is not None and layer.diff_id and hasher.hexdigest() != layer.diff_id.hex:
        raise DigestMismatch(
            f"{where} does not match the image config: its diff_id is {layer.diff_id.algorithm}:"
            f"{hasher.hexdigest()}, expected {layer.diff_id}",
            context={"layer": layer.name},
            hint="the image is damaged or was built wrongly: pull it again",
        )


def _count(chunks: Iterator[bytes], ledger: Ledger) -> Iterator[bytes]:
    for chunk in chunks:
        ledger.charge_compressed(len(chunk))
        yield chunk


class PieceFeed:
    """Iterates over a generator that runs on a thread of its own, or right here when no thread can be had.

    Errors of the generator are raised to the reader. `close` must be called; it ends the thread and the generator.

    Two simple queues, because they are safe where a signal's handler raises in the reader: `queue.Queue` would leave
    its lock held, and `close` wait for it for ever. Each item takes one of the places of the second queue.
    """

    def __init__(self, pieces: Iterator[bytes], *, threaded: bool) -> None:
        self._pieces = pieces
        self._items: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(_WAITING):
            self._places.put(None)
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._ended = False
        if threaded:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kedge-inflate", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed (RLIMIT_NPROC, pids cgroup): slower, but it works
            return
        self._thread = thread

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for piece in self._pieces:
                if not self._put(piece):
                    break
        except BaseException as problem:  # raised again in the reader's thread
            last = problem
        try:
            _close(self._pieces)
        except BaseException as problem:
            last = last or problem
        self._put(last)

    def _put(self, item: bytes | BaseException | None) -> bool:
        """Wait for a place; whether the reader still wants the item."""
        self._places.get()
        self._items.put(item)
        return not self._is_stopped

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._thread is None:
            return next(self._pieces)
        if self._ended:
            raise StopIteration
        item = self._items.get()
        self._places.put(None)
        if isinstance(item, bytes):
            return item
        self._ended = True
        if item is None:
            raise StopIteration
        raise item

    def drain(self) -> None:
        """Read to the end: only then are digests verified."""
        for _ in self:
            pass

    def close(self) -> None:
        """Stop, whatever was left unread; idempotent."""
        self._is_stopped = True
        self._ended = True
        if self._thread is None:
            _close(self._pieces)
            return
        for _ in range(2):  # for a thread that waits for a place, and for its last word
            self._places.put(None)
        self._thread.join(_FAREWELL)


def _close(pieces: Iterator[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
