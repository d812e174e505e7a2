# SPDX-License-Identifier: BSD-3-Clause
"""Opens layers in a registry, so that they stream through the cache while they arrive."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from kedge.base.digest import Digest
from kedge.base.manifest import Descriptor, ImageConfig
from kedge.base.platform import Platform
from kedge.base.progress import Task
from kedge.base.reference import Reference
from kedge.errors import CorruptImage
from kedge.image.formats.singularityd.documents import SourceRecord, add_build
from kedge.image.layers.layer_source import LayerSource
from kedge.image.sources.image_source import LayeredImage, choose_reading
from kedge.image.sources.resolve import Resolved, compare_platform, read_config, refuse_artifacts
from kedge.image.store.download import Ingest, IngestOptions
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace

if TYPE_CHECKING:
    from kedge.image.registry.blob_stream import BlobStream

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def open_remote_image(resolved: Resolved, workplace: Workplace, store: Store) -> LayeredImage:
    """Start the downloads, top layer first, and describe the image they make."""
    refuse_artifacts(resolved)
    raw, config = read_config(resolved, store)
    compare_platform(
        config.platform, resolved.reference, workplace
    )  # an image without an index may be for any architecture
    manifest = resolved.manifest
    diff_ids = _pair_diff_ids(resolved, config)
    ingests = _start_downloads(resolved, manifest.layers, store, workplace)
    layers = tuple(
        _describe_layer(layer, diff_id, ingests[layer.digest.hex])
        for layer, diff_id in zip(manifest.layers, diff_ids, strict=True)
    )
    record = make_record(resolved, config, workplace.platform)
    options = choose_reading(workplace)
    return LayeredImage(
        manifest=manifest,
        config_bytes=raw,
        config=config,
        layers=layers,
        record=record,
        options=options,
        on_close=store.close,
    )


def _pair_diff_ids(resolved: Resolved, config: ImageConfig) -> tuple[Digest | None, ...]:
    """The digest of each layer's tar; None for all if the config (of a very old tool) has none."""
    diff_ids, layers = config.diff_ids, resolved.manifest.layers
    if diff_ids and len(diff_ids) != len(layers):
        raise CorruptImage(
            f"{resolved.reference} has {len(layers)} layers, but its config describes {len(diff_ids)}",
            context={"manifest": str(resolved.digest), "config": str(resolved.manifest.config.digest)},
            hint="the image is broken in the registry: its owner has to push it again",
        )
    return diff_ids or (None,) * len(layers)


def _start_downloads(
    resolved: Resolved, layers: tuple[Descriptor, ...], store: Store, workplace: Workplace
) -> dict[str, Ingest]:
    """Begin to fetch every layer, the last (topmost) first, each digest once."""
    ingests: dict[str, Ingest] = {}
    for layer in reversed(layers):
        if layer.digest.hex in ingests:
            continue
        task = workplace.progress.task(f"layer {short_name(layer)}", layer.size)
        options = choose_ingest(workplace, _count_down(task, layer.size))
        ingests[layer.digest.hex] = store.ingest(layer, _opener(resolved, layer), options)
    return ingests


def choose_ingest(workplace: Workplace, advance: Callable[[int], None]) -> IngestOptions:
    """How this command fetches a blob; `advance` gets the number of new bytes."""
    return IngestOptions(tries=workplace.settings.retries + 1, advance=advance, notify=workplace.progress.note)


def _count_down(task: Task, total: int) -> Callable[[int], None]:
    """`task.advance`, which finishes the task after `total` bytes."""
    left = total

    def advance(amount: int) -> None:
        nonlocal left
        left -= amount
        task.advance(amount)
        if left <= 0:
            task.finish()

    return advance


def _opener(resolved: Resolved, layer: Descriptor) -> Callable[[int], AbstractContextManager[BlobStream]]:
    return lambda offset: resolved.client.open_blob(resolved.reference.repository, layer, offset)


def _describe_layer(layer: Descriptor, diff_id: Digest | None, ingest: Ingest) -> LayerSource:
    return LayerSource(short_name(layer), layer.digest, diff_id, ingest.follow, layer.size)


def make_record(resolved: Resolved, config: ImageConfig, wanted: Platform) -> SourceRecord:
    """Where the image came from, for its labels and its definition file."""
    record = SourceRecord(
        kind="docker",
        reference=source_name(resolved.reference),
        digest=resolved.digest,
        platform=image_platform(config, wanted),
        created=parse_time(config.created),
    )
    return add_build(record, config)


def short_name(layer: Descriptor) -> str:
    """The first twelve digits of the digest, as other tools show layers."""
    return layer.digest.hex[:12]


def source_name(reference: Reference) -> str:
    """The reference as a definition file's From: line has it."""
    registry = "" if reference.registry == "docker.io" else f"{reference.registry}/"
    name = reference.name.removeprefix("library/") if not registry else reference.name
    return registry + name


def image_platform(config: ImageConfig, wanted: Platform) -> Platform:
    """The platform of the image; the wanted one if its config does not say."""
    return wanted if config.platform.architecture == "unknown" else config.platform


def parse_time(text: str) -> int:
    """Unix seconds of a config's RFC 3339 time, UTC without a zone; 0 if it cannot be read."""
    for readable in (text, text[:19]):  # some tools write words after the time
        try:
            moment = datetime.datetime.fromisoformat(readable.upper())
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return max((moment - _EPOCH) // datetime.timedelta(seconds=1), 0)
    return 0
