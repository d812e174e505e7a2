# SPDX-License-Identifier: BSD-3-Clause
"""Any opened image as layers with a manifest: what registries, OCI layouts and archives take.

A layered image is passed on as it is, byte for byte. Anything else becomes one layer, put together in a temporary file;
the same tree and config give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import replace
from kedge.base.manifest import (
    DOCKER_LAYER_GZIP,
    DOCKER_LAYER_TAR,
    OCI_CONFIG,
    OCI_LAYER_GZIP,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    parse_manifest,
)
from kedge.base.progress import Progress, Silent
from kedge.base.tree import Buffer, ContentSource, Node
from kedge.image.formats.compression.gzip_layers import GzipLayerCompressor
from kedge.image.formats.oci.stored_image import StoredImage, StoredLayer
from kedge.image.formats.singularityd.derive_config import derive_section
from kedge.image.formats.singularityd.documents import BUILD_KEY, write_build
from kedge.image.formats.singularityd.inspect_report import parse_metadata
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.sources.image_source import ImageSource, LayeredImage, TreeImage
from kedge.system.files import explained

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """How an image that has no layers gets one."""

    temporary: Path | None = None
    threads: int = 1
    progress: Progress = field(default_factory=Silent)


@contextlib.contextmanager
def as_stored_image(image: ImageSource, tag: str | None, options: LayerOptions | None = None) -> Iterator[StoredImage]:
    """The image with its manifest, config and layers; valid inside the block."""
    options = options or LayerOptions()
    if isinstance(image, LayeredImage):
        sizes = [layer.size for layer in image.manifest.layers]
        layers = tuple(
            StoredLayer(source.name, source.digest, source.diff_id, size, source.open)
            for source, size in zip(image.layers, sizes, strict=True)
        )
        yield StoredImage(image.manifest, image.config_bytes, layers, tag)
        return
    place = options.temporary or Path(tempfile.gettempdir())
    with contextlib.ExitStack() as closing:
        with explained(place):
            spool = closing.enter_context(tempfile.TemporaryFile(prefix="kedge-layer-", dir=place))
        with as_tree(image, place) as (root, source), explained(place):
            result = write_layer(root, source, spool, threads=options.threads)
            spool.flush()
        section = make_section(image, options.progress)
        yield _single_layer(image, section, spool, result, tag)


@contextlib.contextmanager
def as_tree(image: ImageSource, place: Path) -> Iterator[tuple[Node, ContentSource]]:
    """The files of an image; what has to be unpacked for it goes to a temporary file in the directory `place`."""
    if isinstance(image, TreeImage):
        yield image.root, image.source
        return
    with explained(place), tempfile.TemporaryFile(prefix="kedge-files-", dir=place) as file:
        spool = FileSpool(file)
        yield image.fill(spool), spool


class FileSpool:
    """Contents of files, one behind the other in a temporary file: a sink first, then a source."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0

    def add(self, data: Buffer) -> object:
        """Keep a small file."""
        return self.add_stream(len(data), [data])

    def add_stream(self, size: int, chunks: Iterable[Buffer]) -> object:
        """Keep a file; the token is where it begins."""
        start = self._end
        for chunk in chunks:
            self._file.write(chunk)
        self._end += size
        return start

    def chunks(self, node: Node) -> Iterator[bytes]:
        """The bytes of a file that was kept."""
        assert isinstance(node.content, int) or not node.size
        yield from _read_stretch(self._file, node.content or 0, node.size)  # type: ignore[arg-type]


def _read_stretch(file: BinaryIO, offset: int, size: int) -> Iterator[bytes]:
    """The bytes of a part of a file that others may read from meanwhile."""
    done = 0
    while done < size:
        file.seek(offset + done)  # somebody else may read from the same file in between
        piece = file.read(min(_PIECE, size - done))
        if not piece:
            return
        done += len(piece)
        yield piece


def make_section(image: ImageSource, progress: Progress) -> dict[str, Any]:
    """The `config` part: the one it was made from, changed by what `.singularity.d` says since."""
    known = image.config.section if image.config is not None else {}
    if not isinstance(image, TreeImage) or image.objects is None:
        return known
    section, warnings = derive_section(parse_metadata(image.objects.inspect_metadata, image.record.reference), known)
    for warning in warnings:
        progress.warn(warning)
    return section


def _single_layer(
    image: ImageSource, section: dict[str, Any], file: BinaryIO, result: LayerResult, tag: str | None
) -> StoredImage:
    config = make_config(image, section, result.diff_id)
    entry = Descriptor(OCI_LAYER_GZIP, result.digest, result.size)
    layer = StoredLayer(result.digest.hex[:12], result.digest, result.diff_id, result.size, _reader(file, result.size))
    return StoredImage(make_manifest(config, [entry]), config, (layer,), tag)


def make_config(image: ImageSource, section: dict[str, Any], diff_id: Digest) -> bytes:
    """The config of an image whose files are one layer."""
    platform = image.record.platform
    document: dict[str, object] = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": section,
        "rootfs": {"type": "layers", "diff_ids": [str(diff_id)]},
        "history": [{"created_by": "kedge"}],
    }
    if platform.variant:
        document["variant"] = platform.variant
    document |= _describe_build(image)
    if image.record.created:
        document["created"] = format_time(image.record.created)
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _describe_build(image: ImageSource) -> dict[str, object]:
    """What the image says of its build, if kedge built it."""
    if not isinstance(image, TreeImage) or image.objects is None:
        return {}
    report = parse_metadata(image.objects.inspect_metadata, image.record.reference)
    return {BUILD_KEY: write_build(report.deffile, report.build)} if report.build else {}


def format_time(seconds: int) -> str:
    """Unix seconds as RFC 3339, as configs have it."""
    import datetime  # late: few commands write configs

    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=min(seconds, 1 << 37))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def make_manifest(config: bytes, layers: Iterable[Descriptor]) -> Manifest:
    """The manifest of a config and its layers, lowest first."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": str(Digest.of(config)), "size": len(config)},
        "layers": [layer.as_json() for layer in layers],
    }
    manifest = parse_manifest(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())
    assert isinstance(manifest, Manifest)
    return manifest


def _reader(file: BinaryIO, size: int) -> Callable[[], Iterator[bytes]]:
    return lambda: _read_stretch(file, 0, size)


@contextlib.contextmanager
def compress_layers(image: StoredImage, options: LayerOptions) -> Iterator[StoredImage]:
    """The image with plain layers as gzip, the same bytes every time; valid inside the block.

    `docker save` keeps layers as plain tar, and registries want gzip. Only for images whose manifest kedge made: one
    that came with a manifest keeps its layers, and so its digest.
    """
    place = options.temporary or Path(tempfile.gettempdir())
    with contextlib.ExitStack() as closing:
        with explained(place):
            spool = closing.enter_context(tempfile.TemporaryFile(prefix="kedge-layers-", dir=place))
            pairs = [
                _compress(layer, spool, options.threads) if entry.media_type == DOCKER_LAYER_TAR else (layer, entry)
                for layer, entry in zip(image.layers, image.manifest.layers, strict=True)
            ]
            spool.flush()
        manifest = _put_layers(image.manifest, [entry for _, entry in pairs])
        yield replace(image, manifest=manifest, layers=tuple(layer for layer, _ in pairs))


def _compress(layer: StoredLayer, spool: BinaryIO, threads: int) -> tuple[StoredLayer, Descriptor]:
    """Write one layer behind those that are in the spool."""
    start, hasher, compressor = spool.tell(), hashlib.sha256(), GzipLayerCompressor(threads)
    for chunk in layer.open():
        data = compressor.compress(chunk)
        hasher.update(data)
        spool.write(data)
    data = compressor.flush()
    hasher.update(data)
    spool.write(data)
    size, digest = spool.tell() - start, Digest("sha256", hasher.hexdigest())
    made = replace(layer, digest=digest, size=size, open=partial(_read_stretch, spool, start, size))
    return made, Descriptor(DOCKER_LAYER_GZIP, digest, size)


def _put_layers(manifest: Manifest, layers: list[Descriptor]) -> Manifest:
    document = {**json.loads(manifest.raw), "layers": [layer.as_json() for layer in layers]}
    made = parse_manifest(json.dumps(document, separators=(",", ":")).encode())
    assert isinstance(made, Manifest)
    return made
