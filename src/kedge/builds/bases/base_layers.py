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

from kedge.base.manifest import OCI_LAYER_ZSTD, Descriptor, parse_config
from kedge.errors import CorruptImage
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.make_layers import as_tree, make_config, make_manifest, make_section
from kedge.image.sources.image_source import ImageSource, LayeredImage, choose_reading
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained

_FORMAT = "kedge base 2"  # raise it when the same image gives another layer
_PIECE = 1 << 20


def as_one_layer(
    open_image: Callable[[], ImageSource],
    identity: str,
    workplace: Workplace,
    store: Store,
    *,
    name: str,
    is_anew: bool = False,
) -> LayeredImage:
    """The image that `open_image` opens as one layer; `identity` says what it holds, `name` what people call it.

    An image whose layer the cache has is not opened, unless the layer is wanted anew: its record tells all.
    """
    key = hashlib.sha256(f"{_FORMAT} {identity}".encode("utf-8", "surrogateescape")).hexdigest()
    known = None if is_anew else store.steps.find(key)
    record = known or _make_layer(key, open_image, workplace, store, is_anew=is_anew)
    assert record.layer is not None
    layer, raw = record.layer, str(record.extra["config"]).encode()
    config = parse_config(raw)
    source = LayerSource(
        layer.digest.hex[:12], layer.digest, record.diff_id, partial(read_cached_layer, store, layer), layer.size
    )
    origin = SourceRecord(str(record.extra["kind"]), name, None, config.platform, int(record.extra["created"]))
    options = choose_reading(workplace)
    manifest = make_manifest(raw, [layer])
    is_decorated = bool(record.extra["is_decorated"])
    return LayeredImage(
        manifest=manifest,
        config_bytes=raw,
        config=config,
        layers=(source,),
        record=origin,
        options=options,
        is_decorated=is_decorated,
    )


def _make_layer(
    key: str, open_image: Callable[[], ImageSource], workplace: Workplace, store: Store, *, is_anew: bool
) -> StepRecord:
    """The record of the image's layer, which is written unless another process has done that meanwhile."""
    claimed = store.steps.claim(key, workplace.progress.note, is_anew=is_anew)
    if isinstance(claimed, StepRecord):
        return claimed
    with claimed:
        image = open_image()
        try:
            return _write_layer(key, image, workplace, store)
        finally:
            image.close()


def _write_layer(key: str, image: ImageSource, workplace: Workplace, store: Store) -> StepRecord:
    with as_tree(image, workplace.settings.temporary_directory) as (root, source):

        def write(file: BinaryIO) -> LayerResult:
            return write_layer(root, source, file, "zstd", threads=workplace.threads)

        layer, diff_id = store.add_layer(write, OCI_LAYER_ZSTD)
    raw = make_config(image, make_section(image, workplace.progress), diff_id)
    extra = {
        "config": raw.decode(),
        "kind": image.record.kind,
        "created": image.record.created,
        "is_decorated": image.is_decorated,
    }
    record = StepRecord(key, layer, diff_id, f"base: {image.record.kind} {image.record.reference}", extra)
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
