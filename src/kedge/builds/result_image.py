# SPDX-License-Identifier: BSD-3-Clause
"""The image that a build gives: the layers of its base and of its steps, with a config and a manifest of its own.

The same base, steps and recipe give the same bytes. The time of the image is that of its youngest step, which a record
has: a build from the cache is as old as what it consists of.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from typing import Any, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.manifest import (
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_TAR,
    DOCKER_LAYER_ZSTD,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_LAYER_TAR,
    OCI_LAYER_ZSTD,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_config,
    parse_manifest,
)
from kedge.builds.states.build_place import StageResult
from kedge.builds.states.roots import read_layer
from kedge.builds.step_values import Recipe
from kedge.errors import DigestMismatch
from kedge.image.formats.singularityd.documents import BUILD_KEY, SourceRecord, write_build
from kedge.image.layers.layer_source import LayerSource
from kedge.image.layers.limits import FlattenOptions
from kedge.image.layers.tar_writer import LayerResult
from kedge.image.sources.image_source import LayeredImage
from kedge.image.store.store import Store

_OCI_TYPES = {
    DOCKER_LAYER_GZIP: OCI_LAYER_GZIP,
    DOCKER_LAYER_TAR: OCI_LAYER_TAR,
    DOCKER_LAYER_ZSTD: OCI_LAYER_ZSTD,
}
# what Docker wrote long ago, and what BuildKit notes of its own builds
_KEYS_OF_THE_BASE = (
    *("id", "parent", "container", "container_config", "docker_version"),
    *("moby.buildkit.buildinfo.v1", "moby.buildkit.cache.v0"),
)
_BASE_NAME, _BASE_DIGEST = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def open_result(build: FinishedBuild, store: Store) -> LayeredImage:
    """The image, ready to be written; the layers of the base may begin to be downloaded."""
    state = build.result.state
    base = state.base.open_image()
    config = _make_config(build, base)
    own = [layer.descriptor for layer in state.layers]
    layers = [*(_as_oci(layer) for layer in (base.manifest.layers if base else ())), *own]
    manifest = _make_manifest(config, layers, _make_annotations(build))
    sources = (*(base.layers if base else ()), *(read_layer(store, layer) for layer in state.layers))
    return LayeredImage(
        manifest=manifest,
        config_bytes=config,
        config=parse_config(config),
        layers=sources,
        record=_make_record(build, base),
        options=base.options if base else FlattenOptions(),
        is_decorated=build.result.is_decorated,
        has_documents=build.result.is_decorated,
    )


def _make_config(build: FinishedBuild, base: LayeredImage | None) -> bytes:
    state = build.result.state
    moment = _format_time(build.created)
    document: dict[str, Any] = dict(base.config.document) if base else {}
    platform = state.base.config.platform
    document |= {"architecture": platform.architecture, "os": platform.os, "created": moment}
    if platform.variant:
        document["variant"] = platform.variant
    diff_ids = [*(base.config.diff_ids if base else ()), *(layer.diff_id for layer in state.layers)]
    document["config"] = dict(build.result.section)
    document["rootfs"] = {"type": "layers", "diff_ids": [str(diff_id) for diff_id in diff_ids]}
    document["history"] = [*_list_earlier(base), *({"created": moment, **entry} for entry in state.history)]
    if build.result.author:
        document["author"] = build.result.author
    for name in _KEYS_OF_THE_BASE:
        document.pop(name, None)
    document[BUILD_KEY] = write_build(build.recipe.text, json.loads(build.note))
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    # bytes of the recipe that are no text cannot stand in JSON; Docker replaces them as well
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def _list_earlier(base: LayeredImage | None) -> list[dict[str, Any]]:
    """The history of the base, with an entry for every layer: else nobody knows which step made which layer."""
    if base is None:
        return []
    entries = list(base.config.history)
    missing = len(base.config.diff_ids) - sum(not entry.get("empty_layer") for entry in entries)
    return [*entries, *({"comment": "a layer of the base"} for _ in range(missing))]


def _make_record(build: FinishedBuild, base: LayeredImage | None) -> SourceRecord:
    opened = build.result.state.base
    first = build.recipe.target.base
    digest = Digest.parse(opened.digest) if opened.digest else None
    kind, reference = (base.record.kind, base.record.reference) if base else (first.agent, first.reference)
    return SourceRecord(
        kind, reference, digest, opened.config.platform, build.created, recipe=build.recipe.text, build=build.note
    )


def _format_time(seconds: int) -> str:
    return (_EPOCH + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_oci(layer: Descriptor) -> Descriptor:
    """A layer of the base as OCI manifests name it."""
    return Descriptor(_OCI_TYPES.get(layer.media_type, layer.media_type), layer.digest, layer.size)


def _make_annotations(build: FinishedBuild) -> dict[str, str]:
    """The base that the image was built on, as other tools look for it."""
    base = build.result.state.base
    if not base.reference or not base.digest:
        return {}
    return {_BASE_NAME: base.reference.removeprefix("docker://"), _BASE_DIGEST: base.digest}


def _make_manifest(config: bytes, layers: list[Descriptor], annotations: dict[str, str]) -> Manifest:
    document: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": Descriptor(OCI_CONFIG, Digest.of(config), len(config)).as_json(),
        "layers": [layer.as_json() for layer in layers],
    }
    if annotations:
        document["annotations"] = annotations
    made = parse_manifest(json.dumps(document, separators=(",", ":")).encode())
    assert isinstance(made, Manifest)
    return made


def keep_in_store(image: LayeredImage, store: Store) -> Digest:
    """Keep all of the image in the cache: layers that come from elsewhere, config and manifest."""
    for descriptor, source in zip(image.manifest.layers, image.layers, strict=True):
        if not store.has_blob(descriptor.digest, descriptor.size):
            _keep_layer(descriptor, source, store)
    store.add_blob(image.config_bytes)
    return store.add_blob(image.manifest.raw)


def _keep_layer(descriptor: Descriptor, source: LayerSource, store: Store) -> None:
    def write(file: BinaryIO) -> LayerResult:
        hashed = hashlib.new(descriptor.digest.algorithm)
        for piece in source.open():
            hashed.update(piece)
            file.write(piece)
        if hashed.hexdigest() != descriptor.digest.hex:
            raise DigestMismatch(f"layer {source.name} is damaged: its digest is not {descriptor.digest}")
        return LayerResult(descriptor.digest, source.diff_id or descriptor.digest, descriptor.size)

    store.add_layer(write, descriptor.media_type)


# A build whose steps are done, as a value: what its image is made of, and by which key the cache knows it.

_CONFIG_VERSION = 2  # raise it when the written config or manifest change


@frozen
class FinishedBuild:
    """The target stage and what is known of the whole build."""

    result: StageResult
    recipe: Recipe
    note: str  # JSON: what the image says of its build
    created: int

    @property
    def key(self) -> str:
        """Equal for builds that give the same image."""
        state = self.result.state
        parts = [_CONFIG_VERSION, state.key, state.base.key, self.result.section, list(map(dict, state.history))]
        text = json.dumps([*parts, self.result.author, self.recipe.text, self.note, self.created], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
