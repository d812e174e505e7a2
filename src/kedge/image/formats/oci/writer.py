# SPDX-License-Identifier: BSD-3-Clause
"""Writes OCI layouts, OCI archives and docker-save archives: sorted, without times, the same bytes every time.

Blobs are checked against their digests while they are written. Archives go into an open file that the caller publishes
(`posix.files.atomic_output`); a layout directory is built beside its target and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.manifest import (
    DOCKER_CONFIG,
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_TAR,
    DOCKER_LAYER_ZSTD,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER_GZIP,
    OCI_LAYER_TAR,
    OCI_LAYER_ZSTD,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_manifest,
)
from kedge.errors import UnsupportedFormat
from kedge.image.formats.compression.streams import inflate
from kedge.image.formats.oci.layout import REF_NAME
from kedge.image.formats.oci.stored_image import StoredImage, StoredLayer, verify_stream
from kedge.system.files import explained, refuse_existing, remove_abandoned, temporary_beside

_TO_OCI = {
    DOCKER_MANIFEST: OCI_MANIFEST,
    DOCKER_CONFIG: OCI_CONFIG,
    DOCKER_LAYER_GZIP: OCI_LAYER_GZIP,
    DOCKER_LAYER_TAR: OCI_LAYER_TAR,
    DOCKER_LAYER_ZSTD: OCI_LAYER_ZSTD,
}
_LAYOUT_MARK = b'{"imageLayoutVersion":"1.0.0"}'

# A file of a layout: its size and how to get its bytes.
_Content = tuple[int, Callable[[], Iterable[bytes]]]


def convert_to_oci(image: StoredImage) -> StoredImage:
    """The image with OCI media types in place of Docker's; blobs stay as they are, the manifest's digest changes."""
    manifest = image.manifest
    if manifest.media_type == OCI_MANIFEST:
        return image
    document: dict[str, Any] = json.loads(manifest.raw)
    document["mediaType"] = OCI_MANIFEST
    for entry in (document["config"], *document["layers"]):
        entry["mediaType"] = _TO_OCI.get(entry.get("mediaType"), entry.get("mediaType"))
    made = parse_manifest(_dump(document))
    assert isinstance(made, Manifest)
    return replace(image, manifest=made)


def write_layout(path: Path, images: Sequence[StoredImage], *, force: bool = False) -> None:
    """Write a layout directory, whole or not at all; with `force` it takes the place of what is there."""
    refuse_existing(path, force=force)
    path = Path(os.path.normpath(path))
    remove_abandoned(path)
    temporary = temporary_beside(path)
    try:
        with explained(path):
            temporary.mkdir()
            for name, (_, open_content) in _layout_files(images).items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                with (temporary / name).open("xb") as file:
                    for chunk in open_content():
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
            _put_folder(temporary, path, force=force)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put_folder(temporary: Path, path: Path, *, force: bool) -> None:
    if not force or not os.path.lexists(path):
        temporary.rename(path)
        return
    aside = temporary_beside(path)  # a directory that is not empty cannot be renamed over
    path.rename(aside)
    try:
        temporary.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink()


def write_oci_archive(file: BinaryIO, images: Sequence[StoredImage]) -> None:
    """Write a tar of a layout into `file` from its position on."""
    contents = _layout_files(images)
    folders = sorted({str(parent) for name in contents for parent in Path(name).parents if str(parent) != "."})
    for folder in folders:
        file.write(_header(folder, 0, tarfile.DIRTYPE))
    for name, (size, open_content) in contents.items():
        file.write(_header(name, size))
        _write_padded(file, size, open_content())
    file.write(bytes(1024))


def write_docker_archive(file: BinaryIO, images: Sequence[StoredImage]) -> None:
    """Write what `docker load` reads: per image a config and uncompressed layers, shared ones once. Needs seeking."""
    entries = []
    repositories: dict[str, dict[str, str]] = {}
    written: set[str] = set()
    for image in images:
        config = f"{Digest.of(image.config).hex}.json"
        layers = [_write_plain_layer(file, layer, written) for layer in image.layers]
        if config not in written:
            _write_member(file, config, image.config)
            written.add(config)
        tags = [_full_tag(image.tag)] if image.tag else []
        entries.append({"Config": config, "RepoTags": tags, "Layers": layers})
        for tag in tags:
            name, _, version = tag.rpartition(":")
            repositories.setdefault(name, {})[version] = layers[-1][:64] if layers else ""
    _write_member(file, "manifest.json", _dump(entries))
    _write_member(file, "repositories", _dump(repositories))
    file.write(bytes(1024))


def _full_tag(tag: str) -> str:
    return tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"


def _write_plain_layer(file: BinaryIO, layer: StoredLayer, written: set[str]) -> str:
    """Inflate a layer into the archive; its size is known only afterwards, so the header is written last."""
    if layer.diff_id is None:
        raise UnsupportedFormat(f"layer {layer.name} has no diff_id: a docker archive cannot hold it")
    name = f"{layer.diff_id.hex}.tar"
    if name in written:
        return name
    written.add(name)
    start = file.tell()
    file.write(bytes(512))
    size = 0
    for piece in verify_stream(inflate(layer.open(), where=layer.name), layer.diff_id, None, f"layer {layer.name}"):
        file.write(piece)
        size += len(piece)
    file.write(bytes(-size % 512))
    end = file.tell()
    file.seek(start)
    file.write(_header(name, size))
    file.seek(end)
    return name


def _write_member(file: BinaryIO, name: str, data: bytes) -> None:
    file.write(_header(name, len(data)))
    _write_padded(file, len(data), (data,))


def _write_padded(file: BinaryIO, size: int, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        file.write(chunk)
    file.write(bytes(-size % 512))


def _header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar header without any time or owner; GNU format, because ustar's sizes end at 8 GiB."""
    member = tarfile.TarInfo(name)
    member.size, member.type, member.mode = size, kind, 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member.tobuf(tarfile.GNU_FORMAT)


def _layout_files(images: Sequence[StoredImage]) -> dict[str, _Content]:
    """Every file of the layout by name, sorted; equal blobs once."""
    contents: dict[str, _Content] = {"oci-layout": _whole(_LAYOUT_MARK), "index.json": _whole(_make_index(images))}
    for image in images:
        for data in (image.manifest.raw, image.config):
            contents[_blob_name(Digest.of(data))] = _whole(data)
        for layer in image.layers:
            if layer.digest is None:
                raise UnsupportedFormat(f"layer {layer.name} has no digest: a layout cannot hold it")
            contents[_blob_name(layer.digest)] = (layer.size, _checked(layer, layer.digest))
    return dict(sorted(contents.items()))


def _checked(layer: StoredLayer, digest: Digest) -> Callable[[], Iterator[bytes]]:
    return lambda: verify_stream(layer.open(), digest, layer.size, f"layer {layer.name}")


def _whole(data: bytes) -> _Content:
    return len(data), lambda: (data,)


def _blob_name(digest: Digest) -> str:
    return f"blobs/{digest.algorithm}/{digest.hex}"


def _make_index(images: Sequence[StoredImage]) -> bytes:
    entries = []
    for image in images:
        notes = {REF_NAME: image.tag} if image.tag else {}
        media_type = image.manifest.media_type
        entry = Descriptor(media_type, image.manifest.digest, len(image.manifest.raw), annotations=notes).as_json()
        platform = None if image.manifest.is_sif else image.parsed_config().platform
        if platform is not None and platform.architecture != "unknown":
            variant = {"variant": platform.variant} if platform.variant else {}
            entry["platform"] = {"architecture": platform.architecture, "os": platform.os, **variant}
        entries.append(entry)
    return _dump({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})


def _dump(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
