# SPDX-License-Identifier: BSD-3-Clause
"""Archives of Docker before 1.10: `repositories` names a top layer, each layer's `json` names its parent.

They have no config with diff_ids, so one is made: settings from the top layer's `json`, diff_ids by hashing.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from kedge.base.manifest import MAXIMUM_CONFIG, MAXIMUM_MANIFEST
from kedge.errors import CorruptImage, UnsupportedFormat
from kedge.image.formats.oci.stored_image import BlobFiles, read_small

_IDENTITY = re.compile(r"[0-9a-f]{64}\Z")
_MAXIMUM_LAYERS = 127  # of Docker at that time


@dataclass(frozen=True, slots=True)
class LegacyImage:
    """An image of a docker-save archive: names, layer members lowest first, and the config or where it is."""

    tags: tuple[str, ...]
    layers: tuple[str, ...]
    config_name: str = ""
    config: bytes | None = None


def read_legacy_images(files: BlobFiles) -> list[LegacyImage]:
    """The images that `repositories` names."""
    if not files.has("repositories"):
        raise UnsupportedFormat(
            f"{files.where} is neither an OCI archive nor one of 'docker save': no index.json, no manifest.json",
            hint="tar files of a root file system, such as those of 'docker export', are not images with layers",
        )
    tags: dict[str, list[str]] = {}
    for repository, versions in _load(files, "repositories", MAXIMUM_MANIFEST).items():
        if not isinstance(versions, dict):
            raise CorruptImage(f"{files.where}/repositories: '{repository}' must be an object")
        for tag, identity in versions.items():
            tags.setdefault(str(identity), []).append(f"{repository}:{tag}")
    return [_read_image(files, identity, tuple(sorted(names))) for identity, names in sorted(tags.items())]


def _read_image(files: BlobFiles, identity: str, tags: tuple[str, ...]) -> LegacyImage:
    top = _load(files, _member(files, identity, "json"), MAXIMUM_CONFIG)
    chain, document = [identity], top
    while document.get("parent"):
        parent = str(document["parent"])
        if parent in chain or len(chain) >= _MAXIMUM_LAYERS:
            raise CorruptImage(f"{files.where}: the parents of {identity} form a loop")
        chain.append(parent)
        document = _load(files, _member(files, parent, "json"), MAXIMUM_CONFIG)
    layers = tuple(_member(files, layer, "layer.tar") for layer in reversed(chain))
    config: dict[str, Any] = {
        key: top[key] for key in ("architecture", "author", "config", "created", "os") if key in top
    }
    config["rootfs"] = {"type": "layers", "diff_ids": [_hash(files, name) for name in layers]}
    return LegacyImage(tags, layers, config=json.dumps(config, sort_keys=True, separators=(",", ":")).encode())


def _member(files: BlobFiles, identity: str, name: str) -> str:
    if not _IDENTITY.match(identity):
        raise CorruptImage(f"{files.where}: '{identity[:80]}' is not a layer's identity")
    return f"{identity}/{name}"


def _hash(files: BlobFiles, name: str) -> str:
    hasher = hashlib.sha256()
    for chunk in files.chunks(name):
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"


def _load(files: BlobFiles, name: str, limit: int) -> dict[str, Any]:
    try:
        document = json.loads(read_small(files, name, limit))
    except (ValueError, RecursionError) as problem:
        raise CorruptImage(f"{files.where}/{name} is not valid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise CorruptImage(f"{files.where}/{name} must be an object")
    return document
