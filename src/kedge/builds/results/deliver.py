# SPDX-License-Identifier: BSD-3-Clause
"""Hands over what was built: a file or directory in any format, a name in the cache, a push to a registry.

A SIF goes through the cache as a pull's does: the same build gives it a second time without writing it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kedge.base.digest import Digest
from kedge.base.frozen import frozen
from kedge.base.image_format import ImageFormat
from kedge.base.manifest import MAXIMUM_MANIFEST, Manifest, parse_manifest
from kedge.builds.results.finished_build import FinishedBuild
from kedge.builds.steps.session import BuildSession
from kedge.image.store.build_steps import StepRecord
from kedge.image.store.images import Handing
from kedge.system.tree_walk import measure_files

if TYPE_CHECKING:
    from kedge.image.sources.image_source import LayeredImage

# Imports inside the methods below are late for start-up cost: an image that the cache has needs none of them.

_FORMAT_VERSION = 3  # raise it when the written bytes change
_DIGEST = "digest"


@frozen
class Delivered:
    """The image that was handed over."""

    digest: Digest  # of its manifest
    size: int


def deliver(build: FinishedBuild, session: BuildSession) -> Delivered:
    """Write, name and push the image as the request says."""
    return _Delivery(build, session).run()


class _Delivery:
    def __init__(self, build: FinishedBuild, session: BuildSession) -> None:
        self._build = build
        self._session = session
        self._key = build.key
        self._digest: Digest | None = None
        self._recalled: Digest | None = None  # from the record of an earlier build
        self._image: LayeredImage | None = None

    def run(self) -> Delivered:
        output = self._session.request.output
        size = 0
        if output.path is not None:
            size = self._write(output.path)
        if output.tag and (output.push or output.path is None):
            named = self._name()
            size = size or named
        return Delivered(self._find_digest(), size)

    def _open(self) -> LayeredImage:
        from kedge.builds.results.result_image import open_result

        if self._image is None:
            self._image = open_result(self._build, self._session.store)
        return self._image

    def _write(self, target: Path) -> int:
        output, workplace = self._session.request.output, self._session.workplace
        if output.form is not ImageFormat.SIF:
            from kedge.image.write_image import choose_options, write_image

            image = self._open()
            self._digest = image.manifest.digest
            options = choose_options(workplace, force=output.force, tag=output.tag or None)
            write_image(target, output.form, image, options)
            return _sum_layers(image.manifest) if output.form is ImageFormat.OCI else _measure(target)
        key = f"build {self._key} {workplace.packing} v{_FORMAT_VERSION}"
        wish = Handing(target, output.force, workplace.settings.link_mode)
        store = self._session.store
        if store.deliver(key, wish) is None:
            store.build_into(key, self._write_sif, wish, keep=not workplace.settings.disable_cache)
        return target.stat().st_size

    def _write_sif(self, file: BinaryIO) -> None:
        from kedge.image.write_image import choose_options, write_sif

        image = self._open()
        self._digest = image.manifest.digest
        write_sif(file, image, choose_options(self._session.workplace))

    def _name(self) -> int:
        """Give the image its names in the cache; bytes of its layers."""
        from kedge.image.local_names import name_image

        output, workplace, store = self._session.request.output, self._session.workplace, self._session.store
        tags = (output.tag, *output.further_tags)
        manifest = self._find_whole() or self._keep()
        self._digest = manifest.digest
        for tag in tags:
            name_image(tag, manifest.digest, workplace, store)
        if output.push:
            from kedge.image.local_names import read_name
            from kedge.image.push import push_opened

            for tag in tags:
                push_opened(self._open(), read_name(tag), workplace, store)
        return _sum_layers(manifest)

    def _find_whole(self) -> Manifest | None:
        """The manifest that an earlier build of the same gave, if the cache still has all that it names."""
        digest, store = self._recall_digest(), self._session.store
        raw = store.read_blob(digest, MAXIMUM_MANIFEST) if digest else None
        manifest = parse_manifest(raw) if raw is not None else None
        if not isinstance(manifest, Manifest):
            return None
        parts = (manifest.config, *manifest.layers)
        if not all(map(store.blobs.is_present, parts)):
            return None
        for part in parts:
            store.blobs.touch(part.digest)
        return manifest

    def _keep(self) -> Manifest:
        from kedge.builds.results.result_image import keep_in_store

        image = self._open()
        keep_in_store(image, self._session.store)
        return image.manifest

    def _find_digest(self) -> Digest:
        """The digest of the manifest, from the record of an earlier build where nothing was opened."""
        digest = self._digest or self._recall_digest() or self._open().manifest.digest
        if digest != self._recall_digest():
            self._session.store.steps.write(StepRecord(self._key, None, None, "image", {_DIGEST: str(digest)}))
        return digest

    def _recall_digest(self) -> Digest | None:
        if self._recalled is None:
            known = self._session.store.steps.find(self._key)
            text = known.extra.get(_DIGEST) if known else None
            self._recalled = Digest.parse(text) if isinstance(text, str) else None
        return self._recalled


def _sum_layers(manifest: Manifest) -> int:
    return sum(layer.size for layer in manifest.layers)


def _measure(target: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    if not target.is_dir():
        return target.stat().st_size
    return measure_files(target)
