# SPDX-License-Identifier: BSD-3-Clause
"""SIF files in OCI registries, in the format of Apptainer's oras://."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_MANIFEST, SIF_CONFIG, SIF_LAYER, Descriptor, Manifest
from kedge.errors import UnsupportedFormat

SIF_CONFIG_BYTES = b"{}"
TITLE = "org.opencontainers.image.title"


def sif_config() -> Descriptor:
    """The descriptor of the config blob, which is always the two bytes `{}`."""
    return Descriptor(SIF_CONFIG, Digest.of(SIF_CONFIG_BYTES), len(SIF_CONFIG_BYTES))


def sif_layer(digest: Digest, size: int) -> Descriptor:
    """The descriptor of a SIF file."""
    return Descriptor(SIF_LAYER, digest, size)


def sif_manifest(descriptor: Descriptor, name: str, annotations: Mapping[str, str] | None = None) -> bytes:
    """The manifest of a SIF called `name`; equal arguments give equal bytes."""
    layer = {**descriptor.as_json(), "annotations": {**descriptor.annotations, TITLE: name}}
    document: dict[str, object] = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": sif_config().as_json(),
        "layers": [layer],
    }
    if annotations:
        document["annotations"] = dict(annotations)
    return json.dumps(document, separators=(",", ":")).encode()


def find_sif(manifest: Manifest, what: str) -> Descriptor:
    """The SIF layer of a manifest; UnsupportedFormat with the right scheme when it is a layered image."""
    if manifest.is_sif:
        return manifest.layers[0]
    kinds = ", ".join(sorted({layer.media_type for layer in manifest.layers})) or "none"
    raise UnsupportedFormat(
        f"{what} is a layered image, not a SIF file",
        context={"layers": kinds},
        hint="use docker:// instead of oras://",
    )
