# SPDX-License-Identifier: BSD-3-Clause
"""An image that has no layers (a SIF, a directory, programs of this host) as a base with one layer, kept in the cache.

The layer is known by what the image holds: the same file under another name costs a look at a small record.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kedge.errors import CorruptImage
from kedge.layers.layer_source import LayerSource
from kedge.layers.limits import FlattenOptions
from kedge.layers.tar_writer import LayerResult, write_layer
from kedge.model.digest import Digest
from kedge.model.manifest import OCI_LAYER_ZSTD, Descriptor, parse_config
from kedge.ops.images.make_layers import as_tree, make_config, make_manifest, make_section
from kedge.ops.setup.workplace import Workplace
from kedge.ops.sources.image_source import ImageSource, LayeredImage
from kedge.posix.files import explained
from kedge.store.build_steps import StepRecord
from kedge.store.store import Store

_FORMAT = "kedge base 1"  # raise it when the same image gives another layer
_PIECE = 1 << 20


Layer = tuple[Descriptor, Digest]  # and its diff_id


def as_one_layer(
    open_image: Callable[[], ImageSource], identity: str, workplace: Workplace, store: Store
) -> LayeredImage:
    """The image that `open_image` opens as one layer; `identity` says what it holds."""
    image = open_image()
    try:
        key = hashlib.sha256(f"{_FORMAT} {identity}".encode("utf-8", "surrogateescape")).hexdigest()
        layer = find_or_make_layer(key, lambda: contextlib.nullcontext(image), workplace, store)
        return open_one_layer(image, layer, workplace, store)
    finally:
        image.close()


def open_one_layer(image: ImageSource, layer: Layer, workplace: Workplace, store: Store) -> LayeredImage:
    """The image with its files as this layer of the cache."""
    descriptor, diff_id = layer
    raw = make_config(image, make_section(image, workplace.progress), diff_id)
    read = partial(read_cached_layer, store, descriptor)
    source = LayerSource(descriptor.digest.hex[:12], descriptor.digest, diff_id, read)
    manifest, config = make_manifest(raw, [descriptor]), parse_config(raw)
    options = FlattenOptions(progress=workplace.progress)
    return LayeredImage(manifest, raw, config, (source,), image.record, options, is_decorated=image.is_decorated)


def find_or_make_layer(
    key: str,
    open_image: Callable[[], contextlib.AbstractContextManager[ImageSource]],
    workplace: Workplace,
    store: Store,
    *,
    anew: bool = False,
) -> Layer:
    """The layer that is known by `key`; where there is none, or `anew`, of the files of an image."""
    record = None if anew else store.steps.find(key)
    if record is None:
        claimed = store.steps.claim(key, workplace.progress.note, is_anew=anew)
        if isinstance(claimed, StepRecord):
            record = claimed
        else:
            with claimed, open_image() as image:
                record = _write_layer(key, image, workplace, store)
    assert record.layer is not None
    assert record.diff_id is not None
    return record.layer, record.diff_id


def _write_layer(key: str, image: ImageSource, workplace: Workplace, store: Store) -> StepRecord:
    with as_tree(image, workplace.settings.temporary_directory) as (root, source):

        def write(file: BinaryIO) -> LayerResult:
            return write_layer(root, source, file, "zstd", threads=workplace.threads)

        layer, diff_id = store.add_layer(write, OCI_LAYER_ZSTD)
    record = StepRecord(key, layer, diff_id, f"base: {image.record.kind} {image.record.reference}")
    store.steps.write(record)
    return record


def read_cached_layer(store: Store, layer: Descriptor) -> Iterator[bytes]:
    """The compressed bytes of a layer that is in the cache."""
    path = store.blob_path(layer.digest)
    with contextlib.ExitStack() as closing:
        with explained(path):
            file = closing.enter_context(path.open("rb"))
        yield from _read(file, path, layer)


def _read(file: BinaryIO, path: Path, layer: Descriptor) -> Iterator[bytes]:
    left = layer.size
    while left:
        with explained(path):
            piece = file.read(min(_PIECE, left))
        if not piece:
            raise CorruptImage(f"the layer {layer.digest} in the cache is incomplete", hint="run 'kedge cache verify'")
        left -= len(piece)
        yield piece
