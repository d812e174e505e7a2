# SPDX-License-Identifier: BSD-3-Clause
"""Small layered images, made in memory with the standard library only, and the containers they are stored in."""

from __future__ import annotations

import functools
import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kedge.base.digest import Digest
from kedge.base.manifest import OCI_CONFIG, OCI_LAYER_GZIP, OCI_LAYER_TAR, OCI_MANIFEST, Manifest, parse_manifest
from kedge.image.formats.oci.stored_image import StoredImage, StoredLayer

Files = Mapping[str, bytes]


def make_tar(files: Files, links: Mapping[str, str] | None = None, *, pax: bool = False) -> bytes:
    """A tar with these regular files and symbolic links, in the given order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return out.getvalue()


def make_image(
    layers: Sequence[Files],
    *,
    tag: str | None = "docker.io/library/test:1",
    architecture: str = "arm64",
    compressed: bool = True,
    section: Mapping[str, object] | None = None,
) -> StoredImage:
    """An OCI image of these layers, with the right digests throughout."""
    plain = [make_tar(files) for files in layers]
    blobs = [gzip.compress(data, mtime=0) if compressed else data for data in plain]
    media_type = OCI_LAYER_GZIP if compressed else OCI_LAYER_TAR
    return store_layers(plain, blobs, media_type, tag=tag, architecture=architecture, section=section)


def store_layers(
    plain: Sequence[bytes],
    blobs: Sequence[bytes],
    media_type: str,
    *,
    tag: str | None,
    architecture: str,
    section: Mapping[str, object] | None = None,
) -> StoredImage:
    """An OCI image of tars, each with the blob that holds it."""
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": dict(section or {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]}),
            "rootfs": {"type": "layers", "diff_ids": [str(Digest.of(data)) for data in plain]},
        }
    ).encode()
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": str(Digest.of(config)), "size": len(config)},
        "layers": [{"mediaType": media_type, "digest": str(Digest.of(b)), "size": len(b)} for b in blobs],
    }
    manifest = parse_manifest(json.dumps(document).encode())
    assert isinstance(manifest, Manifest)
    stored = tuple(
        StoredLayer(f"layer{n}", Digest.of(blob), Digest.of(data), len(blob), functools.partial(_give, blob))
        for n, (blob, data) in enumerate(zip(blobs, plain, strict=True))
    )
    return StoredImage(manifest, config, stored, tag)


def _give(blob: bytes) -> Iterator[bytes]:
    return iter([blob])


def read_layers(image: StoredImage) -> list[bytes]:
    """The bytes of every layer."""
    return [b"".join(layer.open()) for layer in image.layers]


def rewrite_index(layout: Path, change: object) -> None:
    """Replace index.json of a layout directory."""
    (layout / "index.json").write_text(change if isinstance(change, str) else json.dumps(change))
