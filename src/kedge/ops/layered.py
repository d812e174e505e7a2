# SPDX-License-Identifier: BSD-3-Clause
"""Any opened image as layers with a manifest: what registries, OCI layouts and archives take.

A layered image is passed on as it is, byte for byte. Anything else becomes one layer, put together in a temporary file.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kedge.formats.oci.stored import StoredImage, StoredLayer
from kedge.layers.folder import read_folder
from kedge.layers.sandbox import SandboxSink
from kedge.layers.tar_writer import LayerResult, write_layer
from kedge.model.digest import Digest
from kedge.model.manifest import OCI_CONFIG, OCI_LAYER_GZIP, OCI_MANIFEST, Manifest, parse_manifest
from kedge.model.tree import ContentSource, Node
from kedge.ops.image_source import ImageSource, LayeredImage, TreeImage
from kedge.posix.files import explained

_PIECE = 1 << 20


@contextlib.contextmanager
def as_stored_image(image: ImageSource, tag: str | None, temporary: Path | None = None) -> Iterator[StoredImage]:
    """The image with its manifest, config and layers; valid inside the block."""
    if isinstance(image, LayeredImage):
        sizes = [layer.size for layer in image.manifest.layers]
        layers = tuple(
            StoredLayer(source.name, source.digest, source.diff_id, size, source.open)
            for source, size in zip(image.layers, sizes, strict=True)
        )
        yield StoredImage(image.manifest, image.config_bytes, layers, tag)
        return
    with explained(temporary or Path(tempfile.gettempdir())):
        place = Path(tempfile.mkdtemp(prefix="kedge-layer-", dir=temporary))
    try:
        with _as_tree(image, place) as (root, source), explained(place):
            path = place / "layer.tar.gz"
            with path.open("w+b") as file:
                result = write_layer(root, source, file)
        yield _single_layer(image, path, result, tag)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _as_tree(image: ImageSource, place: Path) -> Iterator[tuple[Node, ContentSource]]:
    if isinstance(image, TreeImage):
        yield image.root, image.source
        return
    folder = place / "root"
    with SandboxSink(folder) as sink:
        sink.finish(image.fill(sink))
    yield read_folder(folder)


def _single_layer(image: ImageSource, path: Path, result: LayerResult, tag: str | None) -> StoredImage:
    config = _make_config(image, result)
    manifest = _make_manifest(config, result)
    layer = StoredLayer(result.digest.hex[:12], result.digest, result.diff_id, result.size, _reader(path))
    return StoredImage(manifest, config, (layer,), tag)


def _make_config(image: ImageSource, result: LayerResult) -> bytes:
    section = image.config.section if image.config is not None else {}
    platform = image.record.platform
    document: dict[str, object] = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": section,
        "rootfs": {"type": "layers", "diff_ids": [str(result.diff_id)]},
        "history": [{"created_by": "kedge"}],
    }
    if platform.variant:
        document["variant"] = platform.variant
    if image.config is not None and image.config.created:
        document["created"] = image.config.created
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _make_manifest(config: bytes, result: LayerResult) -> Manifest:
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": str(Digest.of(config)), "size": len(config)},
        "layers": [{"mediaType": OCI_LAYER_GZIP, "digest": str(result.digest), "size": result.size}],
    }
    manifest = parse_manifest(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    assert isinstance(manifest, Manifest)
    return manifest


def _reader(path: Path) -> Callable[[], Iterator[bytes]]:
    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    return read
