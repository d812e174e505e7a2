# SPDX-License-Identifier: BSD-3-Clause
"""OCI and Docker (schema 2) manifests, indexes and image configs, parsed once from untrusted JSON.

Each value keeps the bytes or the JSON object it came from, so that nothing unknown is lost when it is written again.
Specification: https://github.com/opencontainers/image-spec (manifest.md, image-index.md, config.md).
"""

from __future__ import annotations

import json
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import fresh, frozen
from kedge.base.platform import Platform
from kedge.errors import CorruptImage, InvalidReference, KedgeError, NoMatchingPlatform, UnsupportedFormat

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
OCI_LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
OCI_LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_LAYER_TAR = "application/vnd.docker.image.rootfs.diff.tar"
DOCKER_LAYER_ZSTD = "application/vnd.docker.image.rootfs.diff.tar.zstd"
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
_SIF_LAYER_LEGACY = "appliciation/vnd.sylabs.sif.layer.tar"  # the misspelling is in the wild
SIF_CONFIG = "application/vnd.sylabs.sif.config.v1+json"

ACCEPTED_MANIFESTS = (OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST)
MAXIMUM_MANIFEST = 8 << 20  # bytes; real ones are a few kB, registries refuse more than 4 MiB
MAXIMUM_CONFIG = 16 << 20
_DAMAGED = "what is stored there is damaged; whoever pushed or saved the image has to do it again"


@frozen
class Descriptor:
    """A pointer to a blob: media type, digest and size."""

    media_type: str
    digest: Digest
    size: int
    platform: Platform | None = None
    annotations: dict[str, str] = fresh(dict)
    urls: tuple[str, ...] = ()  # where a foreign layer may be fetched when the registry does not have it

    def as_json(self) -> dict[str, object]:
        """The descriptor as manifests carry it (without the platform)."""
        out: dict[str, object] = {"mediaType": self.media_type, "digest": str(self.digest), "size": self.size}
        if self.annotations:
            out["annotations"] = self.annotations
        if self.urls:
            out["urls"] = list(self.urls)
        return out


@frozen
class Manifest:
    """One image for one platform: a config and layers, lowest first."""

    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: dict[str, str]
    raw: bytes

    @property
    def digest(self) -> Digest:
        """The digest the registry knows this manifest by."""
        return Digest.of(self.raw)

    @property
    def is_sif(self) -> bool:
        """Whether this is a SIF pushed with ORAS and not a layered image."""
        return len(self.layers) == 1 and self.layers[0].media_type in (SIF_LAYER, _SIF_LAYER_LEGACY)


@frozen
class Index:
    """Several manifests, one per platform."""

    media_type: str
    manifests: tuple[Descriptor, ...]
    raw: bytes

    def choose(self, wanted: Platform, what: str = "the image") -> Descriptor:
        """The first manifest for `wanted`, an exact variant preferred; attestations are passed over.

        The only image of an index is chosen whatever it is for: its config says that, as where there is no index.
        """
        images = [m for m in self.manifests if m.platform is not None and m.platform.os == "linux"]
        fitting = [m for m in images if m.platform is not None and wanted.accepts(m.platform)]
        exact = [m for m in fitting if m.platform == wanted]
        if fitting:
            return (exact or fitting)[0]
        bare = [m for m in self.manifests if m.platform is None]
        if len(only := images or bare) == 1:
            return only[0]  # without a platform: OCI layouts made by hand look so
        known = [m.platform for m in self.manifests if m.platform and m.platform.architecture != "unknown"]
        there = sorted({platform.architecture if platform.os == "linux" else str(platform) for platform in known})
        raise NoMatchingPlatform(
            f"{what} has no {wanted} version; it is there for: {', '.join(there) or 'no platform at all'}",
            hint="choose one of these with --arch to run it on another host" if images else "try another tag",
        )


@frozen
class ImageConfig:
    """The image config: environment, entrypoint, labels and what it was built for."""

    platform: Platform
    environment: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_directory: str = ""
    user: str = ""
    labels: dict[str, str] = fresh(dict)
    created: str = ""
    diff_ids: tuple[Digest, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    document: dict[str, Any] = fresh(dict)  # the whole JSON object

    @property
    def section(self) -> dict[str, Any]:
        """The `config` object alone: what a SIF keeps as oci-config.json."""
        section = self.document.get("config")
        return section if isinstance(section, dict) else {}


def parse_manifest(raw: bytes, media_type: str = "", where: str = "manifest") -> Manifest | Index:
    """Read a manifest or index; the media type in the document wins over the one the server sent."""
    document = _load_object(raw, where)
    if document.get("schemaVersion") == 1 or "fsLayers" in document:
        raise UnsupportedFormat(
            f"{where} is a Docker schema 1 manifest, a format registries stopped serving in 2019",
            hint="ask the owner to push the image again with a current Docker, Podman or skopeo",
        )
    kind = str(document.get("mediaType") or media_type.split(";", maxsplit=1)[0].strip())
    if "manifests" in document and "layers" not in document:
        listed = enumerate(_list(document, "manifests", where))
        entries = tuple(_descriptor(entry, where, f"manifests[{i}]") for i, entry in listed)
        return Index(kind or OCI_INDEX, entries, raw)
    if "layers" not in document or "config" not in document:
        raise CorruptImage(f"{where} is neither an image manifest nor an index", context={"mediaType": kind or "none"})
    layers = tuple(_descriptor(d, where, f"layers[{i}]") for i, d in enumerate(_list(document, "layers", where)))
    config = _descriptor(document["config"], where, "config")
    return Manifest(kind or OCI_MANIFEST, config, layers, _strings(document.get("annotations"), where), raw)


def parse_config(raw: bytes, where: str = "image config") -> ImageConfig:
    """Read an image config; a missing or null field is an empty one, a field of the wrong type an error."""
    document = _load_object(raw, where)
    section = document.get("config") or {}
    rootfs = document.get("rootfs") or {}
    if not isinstance(section, dict) or not isinstance(rootfs, dict):
        raise CorruptImage(f"{where}: 'config' and 'rootfs' must be objects")
    return ImageConfig(
        platform=_platform(document),
        environment=_texts(section.get("Env"), where, "config.Env"),
        entrypoint=_texts(section.get("Entrypoint"), where, "config.Entrypoint"),
        command=_texts(section.get("Cmd"), where, "config.Cmd"),
        working_directory=str(section.get("WorkingDir") or ""),
        user=str(section.get("User") or ""),
        labels=_strings(section.get("Labels"), where),
        created=str(document.get("created") or ""),
        diff_ids=tuple(_digest(text, where, "rootfs.diff_ids") for text in _list(rootfs, "diff_ids", where)),
        history=tuple(h for h in _list(document, "history", where) if isinstance(h, dict)),
        document=document,
    )


def _load_object(raw: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise CorruptImage(
            f"{where} is not valid JSON: {problem}", context={"bytes": str(len(raw))}, hint=_DAMAGED
        ) from None
    if not isinstance(document, dict):
        raise CorruptImage(f"{where} is JSON, but not an object", hint=_DAMAGED)
    return document


def _list(document: dict[str, Any], key: str, where: str) -> list[Any]:
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise CorruptImage(f"{where}: '{key}' must be a list, not {type(value).__name__}")
    return value


def _texts(value: object, where: str, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):  # Docker accepts a bare string for Entrypoint and Cmd
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CorruptImage(f"{where}: '{key}' must be a list of strings")
    return tuple(value)


def _strings(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CorruptImage(f"{where}: labels and annotations must be objects, not {type(value).__name__}")
    return {str(key): str(item) for key, item in value.items()}


def _digest(text: object, where: str, key: str) -> Digest:
    try:
        return Digest.parse(str(text))
    except InvalidReference as problem:
        raise CorruptImage(f"{where}: '{key}': {problem.message}") from None


def _descriptor(value: object, where: str, key: str) -> Descriptor:
    if not isinstance(value, dict):
        raise CorruptImage(f"{where}: '{key}' must be a descriptor object, not {type(value).__name__}")
    size = value.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or size >= 1 << 63:
        raise CorruptImage(f"{where}: '{key}.size' must be a non-negative integer, not {size!r}")
    platform = value.get("platform")
    return Descriptor(
        media_type=str(value.get("mediaType") or ""),
        digest=_digest(value.get("digest"), where, f"{key}.digest"),
        size=size,
        platform=_platform(platform) if isinstance(platform, dict) else None,
        annotations=_strings(value.get("annotations"), where),
        urls=_texts(value.get("urls"), where, f"{key}.urls"),
    )


def _platform(value: dict[str, Any]) -> Platform:
    architecture = str(value.get("architecture") or "")
    variant = str(value.get("variant") or "")
    if not architecture:
        return Platform("unknown")
    try:
        known = Platform.parse(architecture)
    except KedgeError:  # an index may list architectures nobody here knows; they just never match
        return Platform(architecture, variant, str(value.get("os") or "linux"))
    return Platform(known.architecture, variant or known.variant, str(value.get("os") or "linux"))
