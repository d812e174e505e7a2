# SPDX-License-Identifier: BSD-3-Clause
"""Images that may exist in the cache alone, because somebody built or tagged them here: cleaning leaves their blobs."""

from __future__ import annotations

from collections.abc import Iterable

from kedge.base.digest import Digest
from kedge.base.manifest import MAXIMUM_MANIFEST, Manifest, parse_manifest
from kedge.errors import KedgeError
from kedge.image.store.layout import Layout
from kedge.image.store.resolved_names import NameRecord, Names

MOST_NAMES = 10_000


def shorten_name(reference: str) -> str:
    """A name as users write it: without scheme, Docker Hub's host, `library` and the tag `latest`."""
    short = reference.removeprefix("docker://").removeprefix("docker.io/").removeprefix("library/")
    return short.removesuffix(":latest")


def find_tagged(layout: Layout) -> dict[str, str]:
    """The blobs of all tagged images by their hexadecimal digests, each with a name of its image."""
    tagged = (record for record in Names(layout).list_newest(MOST_NAMES) if record.is_local)
    return {digest.hex: shorten_name(record.reference) for record in tagged for digest in list_blobs(layout, record)}


def list_blobs(layout: Layout, record: NameRecord) -> Iterable[Digest]:
    """Manifest, config and layers of an image; the manifest alone where it cannot be read."""
    try:
        with layout.blob(record.digest).open("rb") as file:
            manifest = parse_manifest(file.read(MAXIMUM_MANIFEST))
    except (OSError, KedgeError):
        return [record.digest]
    parts = (manifest.config, *manifest.layers) if isinstance(manifest, Manifest) else ()
    return [record.digest, *(part.digest for part in parts)]
