# SPDX-License-Identifier: BSD-3-Clause
"""Names that images have in this cache alone: what `kedge build -t NAME` leaves, and `docker tag` adds.

`docker://NAME` then means the image in the cache, and no registry is asked, until a push or `--pull newer` gives the
name another meaning. Layers, config and manifest are blobs of the cache.
"""

from __future__ import annotations

from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.frozen import JsonValue, frozen
from kedge.base.manifest import MAXIMUM_MANIFEST, Manifest, parse_manifest
from kedge.base.platform import Platform
from kedge.base.reference import Reference, Transport
from kedge.errors import ImageNotFound, InvalidReference, KedgeError
from kedge.image.node.node_cache_writer import NodeCache
from kedge.image.node_cache import reference_path
from kedge.image.store.resolved_names import NameRecord
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace

_LISTED = 10_000  # names, the newest first


@frozen
class NamedImage(JsonValue):
    """An image of the cache and its name."""

    reference: str  # as docker:// has it, without the scheme
    digest: Digest
    size: int  # bytes of its layers, compressed
    when: float  # seconds since 1970: when it got the name, or was last asked for
    is_local: bool


def read_name(text: str) -> Reference:
    """The reference of a name as docker's users write it: `team/tools:1`, with or without `docker://`."""
    reference = Reference.parse(text if "://" in text else f"docker://{text}")
    if reference.transport is not Transport.DOCKER or reference.digest is not None:
        raise InvalidReference(f"'{text}' is no name for an image", hint="write it as HOST/NAME:TAG or NAME:TAG")
    return reference


def name_image(text: str, digest: Digest, workplace: Workplace, store: Store) -> None:
    """Give the image with this manifest a name in the cache; starts on this node see the new meaning at once."""
    spellings = _spell(text)
    for spelling in spellings:
        for platform in _list_platforms(workplace.platform):
            store.remember(f"docker://{spelling}", platform, digest, is_local=True)
    _forget_on_node({*spellings, text.removeprefix("docker://")}, workplace)


def find_named(text: str, workplace: Workplace, store: Store) -> tuple[NameRecord, Manifest]:
    """What a name means in the cache, with its manifest; raises where the cache has no such image."""
    reference = read_name(text)
    record = store.recall(str(reference), workplace.platform)
    manifest = _read_manifest(record, store) if record is not None else None
    if record is None or manifest is None:
        name = text.removeprefix("docker://")
        raise ImageNotFound(
            f"the cache has no image called {name}",
            hint=f"to build it: kedge build -t {name} CONTEXT; to get it: kedge pull docker://{name}",
        )
    return record, manifest


def list_named(store: Store) -> list[NamedImage]:
    """The images of the cache that have a name and whose manifest is there, the newest first."""
    images: dict[str, NamedImage] = {}
    for record in store.names.list_newest(_LISTED):
        name = record.reference.removeprefix("docker://")
        manifest = _read_manifest(record, store) if record.reference.startswith("docker://") else None
        if manifest is not None:
            size = sum(layer.size for layer in manifest.layers)
            shown = name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
            images.setdefault(shown, NamedImage(shown, record.digest, size, record.when, record.is_local))
    return list(images.values())


def tag_image(source: str, target: str, workplace: Workplace) -> Digest:
    """Give an image of the cache a further name."""
    with workplace.open_store() as store:
        record, _ = find_named(source, workplace, store)
        name_image(target, record.digest, workplace, store)
    return record.digest


def remove_image(text: str, workplace: Workplace) -> int:
    """Take a name from the cache, and what no other image of it needs; the bytes that are free now."""
    spellings = _spell(text)
    with workplace.open_store() as store:
        removed = store.remove_name({f"docker://{spelling}" for spelling in spellings})
    if not removed:
        name = text.removeprefix("docker://")
        raise ImageNotFound(f"the cache has no image called {name}", hint="to list the images: kedge image list")
    _forget_on_node({*spellings, text.removeprefix("docker://")}, workplace)
    return sum(entry.size for entry in removed)


def _read_manifest(record: NameRecord, store: Store) -> Manifest | None:
    try:
        raw = store.read_blob(record.digest, MAXIMUM_MANIFEST)
        document = parse_manifest(raw) if raw is not None else None
    except KedgeError:
        return None
    return document if isinstance(document, Manifest) else None


def _list_platforms(platform: Platform) -> set[Platform]:
    """Return the platform with and without its variant: `--arch arm64` and an arm64 v8 host ask for the same."""
    usual = Platform("arm64", "v8") if platform.architecture == "arm64" and platform.variant in ("", "v8") else platform
    return {platform, Platform(platform.architecture), usual}


def _spell(text: str) -> list[str]:
    """The ways to write a name in full: with no tag the tag is latest."""
    name = str(read_name(text)).removeprefix("docker://")
    if ":" not in name.rpartition("/")[2]:
        return [name, f"{name}:latest"]
    return [name, name.removesuffix(":latest")] if name.endswith(":latest") else [name]


def _forget_on_node(names: set[str], workplace: Workplace) -> None:
    """Let the next start on this node ask again what the name means, as the user writes it or in full."""
    place = str(NodeCache(workplace.settings).place)
    short = {name.removeprefix("docker.io/").removeprefix("library/") for name in names}
    for name in names | short:
        for scheme in ("docker://", "docker:"):
            Path(reference_path(place, f"{scheme}{name}", "")).unlink(missing_ok=True)
