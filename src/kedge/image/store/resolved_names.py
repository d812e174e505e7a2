# SPDX-License-Identifier: BSD-3-Clause
"""What a reference meant when it was last asked: one small file per name, for `--offline` and for pinned digests."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.manifest import MAXIMUM_MANIFEST, Manifest, parse_manifest
from kedge.base.platform import Platform
from kedge.errors import KedgeError
from kedge.image.store.layout import Layout, hash_text

_NAME_LIMIT = 64 << 10  # bytes; a record is a few hundred


@frozen
class NameRecord:
    """A reference, the platform it was asked for, and the manifest it led to."""

    reference: str
    platform: str
    digest: Digest
    when: float
    is_local: bool = False  # built or tagged here: no registry is asked what it means


class Names:
    """The names of one cache."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def _path(self, reference: str, platform: Platform | str) -> Path:
        return self._layout.root / "names" / f"{hash_text(f'{reference} {platform}')}.json"

    def remember(self, reference: str, platform: Platform, digest: Digest, *, is_local: bool = False) -> None:
        """Note what the reference means now; the newest note counts, and a name of this cache that stays is kept."""
        if is_local:
            known = self.recall(reference, platform)
            if known is not None and known.is_local and known.digest == digest:
                return
        record: dict[str, object] = {
            "reference": reference,
            "platform": str(platform),
            "digest": str(digest),
            "when": int(time.time()),  # never after now
        }
        if is_local:
            record["local"] = True
        self._layout.folder("names")
        data = json.dumps(record).encode() + b"\n"
        self._layout.write(self._path(reference, platform), data, is_lasting=is_local)

    def recall(self, reference: str, platform: Platform) -> NameRecord | None:
        """What the reference meant when it was last asked; None when it never was."""
        path = self._path(reference, platform)
        record = read_name(path)
        if record is None or record.reference != reference or record.platform != str(platform):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return record

    def find_file(self, record: NameRecord) -> Path:
        """Where a record stands."""
        return self._path(record.reference, record.platform)

    def list_newest(self, limit: int) -> list[NameRecord]:
        """The records that were used last, the latest first; damaged ones are passed over."""
        dated: list[tuple[float, Path]] = []
        with contextlib.suppress(OSError), os.scandir(self._layout.root / "names") as entries:
            dated = [(entry.stat().st_mtime, Path(entry.path)) for entry in entries if entry.name.endswith(".json")]
        records = [read_name(path) for _, path in sorted(dated, reverse=True)[:limit]]
        return [record for record in records if record is not None]


def read_name(path: Path) -> NameRecord | None:
    """The record in a file; None for one that is missing or damaged."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_NAME_LIMIT))
        return NameRecord(
            str(fields["reference"]),
            str(fields["platform"]),
            Digest.parse(str(fields["digest"])),
            float(int(fields["when"])),  # infinity, what is no number and what is beyond all numbers raise
            fields.get("local") is True,
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, KedgeError):
        return None


# Images that may exist in the cache alone, because somebody built or tagged them here: cleaning leaves their blobs.

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
