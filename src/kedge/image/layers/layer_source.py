# SPDX-License-Identifier: BSD-3-Clause
"""Where a layer's bytes come from: opened, counted, inflated and checked against its diff_id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.errors import DigestMismatch
from kedge.image.formats.compression.streams import inflate
from kedge.image.layers.aside_hash import AsideHash
from kedge.image.layers.limits import Ledger

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
