# SPDX-License-Identifier: BSD-3-Clause
"""Where a layer's bytes come from: opened, counted, inflated and checked against its diff_id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kedge.errors import DigestMismatch
from kedge.formats.compression import SegmentScan, inflate
from kedge.frozen import frozen
from kedge.layers.aside_hash import AsideHash
from kedge.layers.limits import FlattenOptions, Ledger
from kedge.model.digest import Digest

_PIECE = 1 << 19
_WIDE_PIECE = 8 << 20  # with many threads, most are half of it: each needs the interpreter lock a dozen times
MANY_THREADS = 6  # from here on cores wait more than they work, and may do what is done twice or apart


@frozen
class LayerSource:
    """One layer: a name for messages, its digests where known, and how to get its compressed bytes.

    `open` may be called twice: when a hard link keeps alive what a higher layer hides, the layer is read again.
    """

    name: str
    digest: Digest | None
    diff_id: Digest | None
    open: Callable[[], Iterator[bytes]]
    open_at: Callable[[int], Iterator[bytes]] | None = None  # the same bytes from an offset on, not verified


def choose_piece(options: FlattenOptions) -> int:
    """The most bytes that a layer is inflated to at once."""
    return _WIDE_PIECE if options.threads >= MANY_THREADS else _PIECE


def inflate_layer(
    layer: LayerSource, ledger: Ledger, *, verify: bool = False, scan: SegmentScan | None = None
) -> Iterator[bytes]:
    """The layer's tar in pieces, charged to `ledger`; with `verify` its digest is compared at the end.

    While `scan` is scanning, pieces are counted and verified, but not given out.
    """
    where = f"layer {layer.name}"
    options = ledger.options
    is_apart = options.threaded and bool(options.ahead) and options.threads >= MANY_THREADS
    hasher = AsideHash(layer.diff_id.algorithm, threaded=is_apart) if verify and layer.diff_id else None
    compressed = layer.open()
    try:
        for piece in inflate(_count(compressed, ledger), where=where, piece=choose_piece(options), scan=scan):
            ledger.charge_inflated(len(piece), where)
            if hasher is not None:
                hasher.update(piece)
            if scan is None or not scan.is_scanning:
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


def _count(chunks: Iterator[bytes], ledger: Ledger) -> Iterator[bytes]:
    for chunk in chunks:
        ledger.charge_compressed(len(chunk))
        yield chunk
