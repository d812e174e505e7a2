# SPDX-License-Identifier: BSD-3-Clause
"""Hands over what was built: a file or directory in any format, a name in the cache, a push to a registry.

A SIF goes through the cache as a pull's does: the same build gives it a second time without writing it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kedge.model.digest import Digest
from kedge.model.image_format import ImageFormat
from kedge.ops.build.result_image import FinishedBuild, keep_in_store
from kedge.ops.build.session import BuildSession
from kedge.ops.images.write_image import choose_options, write_image, write_sif
from kedge.store.build_steps import StepRecord
from kedge.store.images import Handing

_FORMAT_VERSION = 1  # raise it when the written bytes change
_DIGEST = "digest"


@dataclass(frozen=True, slots=True)
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
        self._digest: Digest | None = None

    def run(self) -> Delivered:
        output = self._session.request.output
        size = 0
        if output.path is not None:
            size = self._write(output.path)
        if output.tag and (output.push or output.path is None):
            size = size or self._name()
        return Delivered(self._find_digest(), size)

    def _write(self, target: Path) -> int:
        output, workplace = self._session.request.output, self._session.workplace
        if output.form is not ImageFormat.SIF:
            image = self._build.open_image(self._session.store)
            self._digest = image.manifest.digest
            options = choose_options(workplace, force=output.force, tag=output.tag or None)
            write_image(target, output.form, image, options)
            return 0 if output.form.is_directory else target.stat().st_size
        key = f"build {self._build.key} {workplace.packing} v{_FORMAT_VERSION}"
        wish = Handing(target, output.force, workplace.settings.link_mode)
        store = self._session.store
        if store.deliver(key, wish) is None:
            store.build_into(key, self._write_sif, wish, keep=not workplace.settings.disable_cache)
        return target.stat().st_size

    def _write_sif(self, file: BinaryIO) -> None:
        image = self._build.open_image(self._session.store)
        self._digest = image.manifest.digest
        write_sif(file, image, choose_options(self._session.workplace))

    def _name(self) -> int:
        """Give the image its names in the cache; bytes of its layers."""
        from kedge.ops.images.local_names import name_image, read_name
        from kedge.ops.images.push import push_opened

        output, store = self._session.request.output, self._session.store
        image = self._build.open_image(store)
        self._digest = keep_in_store(image, store)
        for tag in (output.tag, *output.further_tags):
            name_image(tag, self._digest, self._session.workplace, store)
            if output.push:
                push_opened(image, read_name(tag), self._session.workplace, store)
        return sum(layer.size for layer in image.manifest.layers)

    def _find_digest(self) -> Digest:
        """The digest of the manifest, from the record of an earlier build where nothing was opened."""
        records = self._session.store.steps
        if self._digest is None:
            known = records.find(self._build.key)
            text = known.extra.get(_DIGEST) if known else None
            self._digest = Digest.parse(text) if isinstance(text, str) else None
        if self._digest is None:
            self._digest = self._build.open_image(self._session.store).manifest.digest
        records.write(StepRecord(self._build.key, None, None, "image", {_DIGEST: str(self._digest)}))
        return self._digest
