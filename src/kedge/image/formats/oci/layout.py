# SPDX-License-Identifier: BSD-3-Clause
"""OCI image layouts: `oci-layout`, `index.json` and content-addressed blobs, in a directory or in a tar.

Specification: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

from pathlib import Path

from kedge.base.manifest import (
    MAXIMUM_CONFIG,
    MAXIMUM_MANIFEST,
    Descriptor,
    Index,
    Manifest,
    parse_config,
    parse_manifest,
)
from kedge.base.platform import Platform
from kedge.errors import CorruptImage, ImageNotFound, KedgeError, UnsupportedFormat
from kedge.image.formats.oci.stored_image import (
    BlobDirectory,
    BlobFiles,
    StoredImage,
    StoredImages,
    StoredLayer,
    pair_layers,
    read_small,
    verify_stream,
)

REF_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"
_MAXIMUM_DEPTH = 4  # an index in an index in an index: nobody nests deeper


class OciLayout(StoredImages):
    """An image layout, opened for reading; an `ImageSource`."""

    def __init__(self, files: BlobFiles) -> None:
        self._files = files
        self.where = files.where
        index = parse_manifest(read_small(files, "index.json", MAXIMUM_MANIFEST), where=f"{self.where}/index.json")
        if not isinstance(index, Index):
            raise CorruptImage(f"{self.where}/index.json is not an index")
        self._index = index

    @classmethod
    def open(cls, path: Path) -> OciLayout:
        """Open a layout directory."""
        if not path.is_dir():
            raise ImageNotFound(f"no OCI layout at {path}", hint="an OCI layout is a directory with an index.json")
        files = BlobDirectory(path)
        if not files.has("index.json"):
            raise UnsupportedFormat(f"{path} is not an OCI layout: it has no index.json")
        return cls(files)

    def tags(self) -> list[str]:
        """The names of the images inside."""
        return sorted({name for entry in self._index.manifests for name in _names(entry)[:1]})

    def image(self, tag: str | None = None, platform: Platform | None = None) -> StoredImage:
        """The image called `tag`, for `platform` where there are several; nested indexes are followed."""
        entries = self._entries(tag)
        chosen = self._choose(Index("", tuple(entries), b""), platform)
        for _ in range(_MAXIMUM_DEPTH):
            document = self._read_document(chosen)
            if isinstance(document, Manifest):
                names = _names(entries[0])
                return self._stored(document, names[0] if names else tag)
            chosen = self._choose(document, platform)
        raise CorruptImage(f"{self.where} nests indexes more than {_MAXIMUM_DEPTH} levels deep")

    def close(self) -> None:
        """Release the files."""
        self._files.close()

    def _entries(self, tag: str | None) -> list[Descriptor]:
        entries = list(self._index.manifests)
        if not entries:
            raise ImageNotFound(f"the OCI layout {self.where} contains no image")
        if tag is not None:
            matching = _matching(entries, tag)
            if not matching:
                raise self._no_such(f"has no image '{tag}'")
            return matching
        if len({(_names(entry) or [""])[0] for entry in entries}) > 1:
            raise self._no_such("holds several images")
        return entries

    def _no_such(self, why: str) -> ImageNotFound:
        names = self.tags()
        listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        return ImageNotFound(
            f"the OCI layout {self.where} {why}; there: {listed or 'unnamed images only'}",
            hint=f"name one: oci:{self.where}:{names[0]}" if names else None,
        )

    def _choose(self, index: Index, platform: Platform | None) -> Descriptor:
        if not index.manifests:
            raise CorruptImage(f"an index in {self.where} is empty")
        if platform is None or (len(index.manifests) == 1 and index.manifests[0].platform is None):
            return index.manifests[0]
        return index.choose(platform, self.where)

    def _read_document(self, entry: Descriptor) -> Manifest | Index:
        return parse_manifest(
            self._read_blob(entry, MAXIMUM_MANIFEST), entry.media_type, f"{self.where}: {entry.digest}"
        )

    def _read_blob(self, entry: Descriptor, limit: int) -> bytes:
        name = _blob_name(entry)
        data = read_small(self._files, name, limit)
        return b"".join(verify_stream([data], entry.digest, entry.size, f"{self.where}/{name}"))

    def _stored(self, manifest: Manifest, tag: str | None) -> StoredImage:
        config = self._read_blob(manifest.config, MAXIMUM_CONFIG)
        layers = tuple(self._layer(entry) for entry in manifest.layers)
        if not manifest.is_sif:
            parsed = parse_config(config, f"{self.where}: image config")
            layers = pair_layers(layers, parsed.diff_ids, self.where)
        return StoredImage(manifest, config, layers, tag)

    def _layer(self, entry: Descriptor) -> StoredLayer:
        name = _blob_name(entry)
        if not self._files.has(name):
            raise CorruptImage(
                f"{self.where} lacks the layer {entry.digest}",
                hint="the layout is incomplete, or was made to share blobs with another: copy it again",
            )
        files, where = self._files, f"{self.where}/{name}"
        return StoredLayer(
            name=str(entry.digest),
            digest=entry.digest,
            diff_id=None,
            size=entry.size,
            open=lambda: verify_stream(files.chunks(name), entry.digest, entry.size, where),
        )


def _blob_name(entry: Descriptor) -> str:
    return f"blobs/{entry.digest.algorithm}/{entry.digest.hex}"


def _names(entry: Descriptor) -> list[str]:
    """What an entry is called, the OCI name first."""
    names = [entry.annotations.get(REF_NAME, ""), entry.annotations.get(_CONTAINERD_NAME, "")]
    return [name for name in names if name]


def _matching(entries: list[Descriptor], tag: str) -> list[Descriptor]:
    """Entries with that very name, else with that digest, else whose full name ends so: `22.04`, `ubuntu:22.04`."""
    exact = [entry for entry in entries if tag in _names(entry)]
    if exact:
        return exact
    by_digest = [entry for entry in entries if tag in (str(entry.digest), f"@{entry.digest}")]
    if by_digest:
        return by_digest
    return [e for e in entries if any(name.endswith((f":{tag}", f"/{tag}")) for name in _names(e))]


def is_layout(files: BlobFiles) -> bool:
    """Whether the files are an OCI layout with images in it."""
    if not files.has("index.json"):
        return False
    try:
        index = parse_manifest(read_small(files, "index.json", MAXIMUM_MANIFEST))
    except KedgeError:
        return False
    return isinstance(index, Index)
