# SPDX-License-Identifier: BSD-3-Clause
"""Plain layers compressed on their way to a registry: `docker save` keeps them as tar, registries want gzip.

Only for images whose manifest was made up here; one that came with a manifest keeps its layers, and so its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kedge.formats.compression import GzipLayerCompressor
from kedge.formats.oci.stored import StoredImage, StoredLayer
from kedge.model.digest import Digest
from kedge.model.manifest import DOCKER_LAYER_GZIP, DOCKER_LAYER_TAR, Descriptor, Manifest, parse_manifest
from kedge.ops.sources.layered import LayerOptions, read_stretch
from kedge.posix.files import explained


@contextlib.contextmanager
def compress_layers(image: StoredImage, options: LayerOptions) -> Iterator[StoredImage]:
    """The image with plain layers as gzip, the same bytes every time; valid inside the block."""
    place = options.temporary or Path(tempfile.gettempdir())
    with contextlib.ExitStack() as closing:
        with explained(place):
            spool = closing.enter_context(tempfile.TemporaryFile(prefix="kedge-layers-", dir=place))
            pairs = [
                _compress(layer, spool, options.threads) if entry.media_type == DOCKER_LAYER_TAR else (layer, entry)
                for layer, entry in zip(image.layers, image.manifest.layers, strict=True)
            ]
            spool.flush()
        manifest = _put_layers(image.manifest, [entry for _, entry in pairs])
        yield replace(image, manifest=manifest, layers=tuple(layer for layer, _ in pairs))


def _compress(layer: StoredLayer, spool: BinaryIO, threads: int) -> tuple[StoredLayer, Descriptor]:
    """Write one layer behind those that are in the spool."""
    start, hasher, compressor = spool.tell(), hashlib.sha256(), GzipLayerCompressor(threads)
    for chunk in layer.open():
        data = compressor.compress(chunk)
        hasher.update(data)
        spool.write(data)
    data = compressor.flush()
    hasher.update(data)
    spool.write(data)
    size, digest = spool.tell() - start, Digest("sha256", hasher.hexdigest())
    made = replace(layer, digest=digest, size=size, open=partial(read_stretch, spool, start, size))
    return made, Descriptor(DOCKER_LAYER_GZIP, digest, size)


def _put_layers(manifest: Manifest, layers: list[Descriptor]) -> Manifest:
    document = {**json.loads(manifest.raw), "layers": [layer.as_json() for layer in layers]}
    made = parse_manifest(json.dumps(document, separators=(",", ":")).encode())
    assert isinstance(made, Manifest)
    return made
