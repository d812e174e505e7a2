# SPDX-License-Identifier: BSD-3-Clause
"""Where a layer's bytes come from: opened, counted, inflated and checked against its diff_id."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.errors import DigestMismatch
from kedge.image.formats.compression.streams import inflate
from kedge.image.layers.limits import Ledger
from kedge.system.threads import start_thread

PIECE = 1 << 19  # the most bytes that a layer is inflated to at once


@frozen
class LayerSource:
    """One layer: a name for messages, its digests where known, and how to get its compressed bytes.

    `open` may be called twice: when a hard link keeps alive what a higher layer hides, the layer is read again.
    """

    name: str
    digest: Digest | None
    diff_id: Digest | None
    open: Callable[[], Iterator[bytes]]
    size: int = 0  # in bytes, compressed; 0 where it is not known


def inflate_layer(
    layer: LayerSource, ledger: Ledger, *, verify: bool = False, is_apart: bool = False
) -> Iterator[bytes]:
    """The layer's tar in pieces, charged to `ledger`; with `verify` its digest is compared at the end.

    `is_apart`: the digest is computed by a thread of its own.
    """
    where = f"layer {layer.name}"
    hasher = AsideHash(layer.diff_id.algorithm, threaded=is_apart) if verify and layer.diff_id else None
    compressed = layer.open()
    try:
        for piece in inflate(count_bytes(compressed, ledger), where=where, piece=PIECE):
            ledger.charge_inflated(len(piece), where)
            if hasher is not None:
                hasher.update(piece)
            yield piece
        found = "" if hasher is None else hasher.hexdigest()
    finally:
        if hasher is not None:
            hasher.close()
        close = getattr(compressed, "close", None)
        if close is not None:
            close()
    if found and layer.diff_id and found != layer.diff_id.hex:
        raise DigestMismatch(
            f"{where} does not match the image config: its diff_id is {layer.diff_id.algorithm}:"
            f"{found}, expected {layer.diff_id}",
            context={"layer": layer.name},
            hint="the image is damaged or was built wrongly: pull it again",
        )


def count_bytes(chunks: Iterator[bytes], ledger: Ledger) -> Iterator[bytes]:
    """Charge what came from the registry to `ledger`."""
    for chunk in chunks:
        ledger.charge_compressed(len(chunk))
        yield chunk


# A digest computed on a thread of its own, so that who inflates does not wait for it; bounded, and exact.

_PLACES = 8  # pieces that wait to be hashed


class AsideHash:
    """Takes pieces in order; `hexdigest` waits for the last of them. `close` must be called.

    Where no thread is wanted, or none can be had, it is an ordinary hash.
    """

    def __init__(self, algorithm: str, *, threaded: bool) -> None:
        self._hash = hashlib.new(algorithm)
        self._pieces: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            for _ in range(_PLACES):
                self._places.put(None)
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kedge-hash", daemon=True)
        try:
            if start_thread(thread):  # else slower, but it works
                self._thread = thread
        except BaseException:  # by a signal's handler; the thread may run, and nobody will close this hash
            self._pieces.put(None)
            raise

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._hash.update(piece)
            self._places.put(None)

    def update(self, piece: bytes) -> None:
        """Take the next piece, which must not change any more."""
        if self._thread is None:
            self._hash.update(piece)
            return
        self._places.get()
        self._pieces.put(piece)

    def hexdigest(self) -> str:
        """The digest of all pieces; nothing may follow."""
        self.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
