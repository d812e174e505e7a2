# SPDX-License-Identifier: BSD-3-Clause
"""Layers of steps as their bytes in the cache."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.builds.states.build_state import StepLayer
from kedge.image.layers.layer_source import LayerSource
from kedge.image.store.store import Store
from kedge.system.files import explained

_PIECE = 1 << 20


def read_layer(store: Store, layer: StepLayer) -> LayerSource:
    """A layer of a step as its bytes in the cache."""
    path = store.blob_path(layer.descriptor.digest)

    def read() -> Iterator[bytes]:
        with explained(path), path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    return LayerSource(
        layer.descriptor.digest.hex[:12], layer.descriptor.digest, layer.diff_id, read, layer.descriptor.size
    )
