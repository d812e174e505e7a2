# SPDX-License-Identifier: BSD-3-Clause
"""Archives of `docker save` and `podman save`: manifest.json with a config and layers per image.

The archive has no registry manifest, so one is made from what it holds: a plain layer's digest is its diff_id. Archives
of Docker before 1.10 have only `repositories` and one directory per layer; see `legacy_archive`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

from kedge.base.digest import Digest
from kedge.base.image_name import DOCKER_HUB, looks_like_registry
from kedge.base.manifest import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_TAR,
    DOCKER_LAYER_ZSTD,
    DOCKER_MANIFEST,
    MAXIMUM_CONFIG,
    MAXIMUM_MANIFEST,
    Descriptor,
    Manifest,
    parse_config,
    parse_manifest,
)
from kedge.base.platform import Platform
from kedge.base.reference import Reference
from kedge.errors import CorruptImage, ImageNotFound, ProgramFailed, ProgramMissing, UnsupportedFormat
from kedge.image.formats.oci.stored_image import (
    BlobFiles,
    StoredImage,
    StoredImages,
    StoredLayer,
    read_small,
    verify_stream,
)
from kedge.system.outside import Outside
from kedge.system.process import stream_program
from kedge.system.programs import find_program

_MAXIMUM_LAYERS = 1000  # Docker itself stops at 127


class DockerArchive(StoredImages):
    """A docker-save archive, opened for reading; an `ImageSource`."""

    def __init__(self, files: BlobFiles) -> None:
        self._files = files
        self.where = files.where
        if files.has("manifest.json"):
            self._images = _read_entries(files)
        else:
            self._images = read_legacy_images(files)
        if not self._images:
            raise ImageNotFound(f"the archive {self.where} contains no image")

    def tags(self) -> list[str]:
        """The names of the images inside."""
        return sorted({tag for image in self._images for tag in image.tags})

    def image(self, tag: str | None = None, platform: Platform | None = None) -> StoredImage:  # noqa: ARG002
        """The image called `tag` (also short, or `@N` by position); there is one each, for whatever platform."""
        image = self._choose(tag)
        raw = image.config if image.config is not None else read_small(self._files, image.config_name, MAXIMUM_CONFIG)
        config = parse_config(raw, f"{self.where}: image config")
        if len(config.diff_ids) != len(image.layers):
            raise CorruptImage(
                f"{self.where}: manifest.json has {len(image.layers)} layers, the config lists {len(config.diff_ids)}"
            )
        pairs = [self._layer(name, diff) for name, diff in zip(image.layers, config.diff_ids, strict=True)]
        manifest = _make_manifest(raw, [entry for _, entry in pairs])
        return StoredImage(manifest, raw, tuple(layer for layer, _ in pairs), image.tags[0] if image.tags else tag)

    def close(self) -> None:
        """Close the archive."""
        self._files.close()

    def _choose(self, tag: str | None) -> LegacyImage:
        if tag is None:
            if len(self._images) == 1:
                return self._images[0]
            raise self._no_such("holds several images")
        if tag.startswith("@") and tag[1:].isdigit() and len(tag) < 7 and int(tag[1:]) < len(self._images):
            return self._images[int(tag[1:])]
        for wanted in dict.fromkeys((tag, f"{tag}:latest")):
            for image in self._images:
                if any(_same_name(wanted, name) for name in image.tags):
                    return image
        raise self._no_such(f"has no image '{tag}'")

    def _no_such(self, why: str) -> ImageNotFound:
        names = self.tags()
        listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        chosen = names[0] if names else "@0"
        return ImageNotFound(
            f"the archive {self.where} {why}; there: {listed or f'{len(self._images)} without a name'}",
            hint=f"name one: docker-archive:{self.where}:{chosen}",
        )

    def _layer(self, name: str, diff_id: Digest) -> tuple[StoredLayer, Descriptor]:
        if not self._files.has(name):
            raise CorruptImage(f"{self.where} lacks the layer {name}", hint="save the image again")
        files, where, size = self._files, f"{self.where}/{name}", self._files.size(name)
        media_type = _sniff_layer(next(files.chunks(name), b""))
        digest = diff_id if media_type == DOCKER_LAYER_TAR else _hash(files, name)
        layer = StoredLayer(
            name=name,
            digest=digest,
            diff_id=diff_id,
            size=size,
            open=lambda: verify_stream(files.chunks(name), digest, size, where),
        )
        return layer, Descriptor(media_type, digest, size)


def _sniff_layer(head: bytes) -> str:
    if head[:2] == b"\x1f\x8b":
        return DOCKER_LAYER_GZIP
    return DOCKER_LAYER_ZSTD if head[:4] == b"\x28\xb5\x2f\xfd" else DOCKER_LAYER_TAR


def _hash(files: BlobFiles, name: str) -> Digest:
    hasher = hashlib.sha256()
    for chunk in files.chunks(name):
        hasher.update(chunk)
    return Digest("sha256", hasher.hexdigest())


def _make_manifest(config: bytes, layers: list[Descriptor]) -> Manifest:
    document = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": Descriptor(DOCKER_CONFIG, Digest.of(config), len(config)).as_json(),
        "layers": [layer.as_json() for layer in layers],
    }
    made = parse_manifest(json.dumps(document, separators=(",", ":")).encode())
    assert isinstance(made, Manifest)
    return made


def _same_name(wanted: str, name: str) -> bool:
    """Whether two names mean the same image once Docker Hub's defaults are filled in."""
    return wanted == name or _full_name(wanted) == _full_name(name)


def _full_name(name: str) -> str:
    first, slash, _ = name.partition("/")
    if slash and looks_like_registry(first):
        return name
    return f"{DOCKER_HUB}/{name}" if slash else f"{DOCKER_HUB}/library/{name}"


def _read_entries(files: BlobFiles) -> list[LegacyImage]:
    where = f"{files.where}/manifest.json"
    try:
        document = json.loads(read_small(files, "manifest.json", MAXIMUM_MANIFEST))
    except (ValueError, RecursionError) as problem:
        raise CorruptImage(f"{where} is not valid JSON: {problem}") from None
    if not isinstance(document, list):
        raise CorruptImage(f"{where} must be a list, not {type(document).__name__}")
    return [_read_entry(entry, f"{where}: image {place}") for place, entry in enumerate(document)]


def _read_entry(entry: Any, where: str) -> LegacyImage:
    if not isinstance(entry, dict) or not isinstance(entry.get("Config"), str):
        raise CorruptImage(f"{where} names no Config")
    layers, tags = entry.get("Layers") or [], entry.get("RepoTags") or []
    for key, value in (("Layers", layers), ("RepoTags", tags)):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise CorruptImage(f"{where}: '{key}' must be a list of strings")
    if len(layers) > _MAXIMUM_LAYERS:
        raise CorruptImage(f"{where} lists {len(layers)} layers; at most {_MAXIMUM_LAYERS} are expected")
    return LegacyImage(tuple(tags), tuple(layers), config_name=entry["Config"])


# Archives of Docker before 1.10: `repositories` names a top layer, each layer's `json` names its parent.
#
# They have no config with diff_ids, so one is made: settings from the top layer's `json`, diff_ids by hashing.

_IDENTITY = re.compile(r"[0-9a-f]{64}\Z")
_LEGACY_ARCHIVE_MAXIMUM_LAYERS = 127  # of Docker at that time


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
        if parent in chain or len(chain) >= _LEGACY_ARCHIVE_MAXIMUM_LAYERS:
            raise CorruptImage(f"{files.where}: the parents of {identity} form a loop")
        chain.append(parent)
        document = _load(files, _member(files, parent, "json"), MAXIMUM_CONFIG)
    layers = tuple(_member(files, layer, "layer.tar") for layer in reversed(chain))
    config: dict[str, Any] = {
        key: top[key] for key in ("architecture", "author", "config", "created", "os") if key in top
    }
    config["rootfs"] = {"type": "layers", "diff_ids": [_hash_of_legacy_archive(files, name) for name in layers]}
    return LegacyImage(tags, layers, config=json.dumps(config, sort_keys=True, separators=(",", ":")).encode())


def _member(files: BlobFiles, identity: str, name: str) -> str:
    if not _IDENTITY.match(identity):
        raise CorruptImage(f"{files.where}: '{identity[:80]}' is not a layer's identity")
    return f"{identity}/{name}"


def _hash_of_legacy_archive(files: BlobFiles, name: str) -> str:
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


# Images of a local Docker or Podman: their own `save` command, streamed into an archive.

_NO_IMAGE = re.compile(r"no such image|not\s+known|does not exist", re.IGNORECASE)  # as docker and podman say it


def save_from_daemon(reference: Reference, target: BinaryIO) -> None:
    """Write the image `reference` names (docker-daemon:, dockerd://, podman://) as a docker-save archive."""
    engine = _choose_engine(reference.engine)
    # Without a tag `save` would take every tag of the repository.
    name = reference.name if reference.tag or reference.digest else f"{reference.name}:latest"
    name = name or str(reference.digest)
    try:
        stream_program([engine, "save"], target, outside=[Outside(name)])
    except ProgramFailed as problem:
        if _NO_IMAGE.search(problem.context.get("stderr", "")):
            raise ImageNotFound(
                f"{engine} has no image '{name}'",
                context=problem.context,
                hint=f"list its images with: {engine} images",
            ) from problem
        raise


def _choose_engine(wanted: str) -> str:
    candidates = ("podman",) if wanted == "podman" else ("docker", "podman")
    for engine in candidates:
        if find_program(engine):
            return engine
    raise ProgramMissing(
        f"the image is stored by {wanted or 'docker'}, but that program is not installed on this host",
        hint="on the host that has it run 'docker save -o image.tar NAME:TAG', then use docker-archive:image.tar here",
    )
