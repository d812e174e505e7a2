# SPDX-License-Identifier: BSD-3-Clause
"""Inspects the image that a reference names, and fetches as little as possible.

Manifest and config tell everything about layers. Of a remote SIF only the header and the small objects are read, by
range requests, or its copy in the cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from kedge.base.manifest import ImageConfig
from kedge.base.reference import Reference
from kedge.errors import ImageNotFound, UnsupportedFormat, UsageError
from kedge.image.formats.identify import FileKind, identify_file
from kedge.image.formats.sif.reader import SeekableBytes, SifReader
from kedge.image.formats.singularityd.decorate_tree import describe
from kedge.image.formats.singularityd.documents import SourceRecord
from kedge.image.inspect import Inspection, inspect_config, inspect_file, inspect_path
from kedge.image.sources.classify import Source, classify
from kedge.image.sources.fetch_layers import make_record
from kedge.image.sources.fetch_sif import SifSource, find_sif_source
from kedge.image.sources.image_source import ImageSource
from kedge.image.sources.open_local import open_any_image
from kedge.image.sources.resolve import read_config, refuse_artifacts, resolve
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace

_WINDOW = 256 << 10  # bytes read at once: a header, its table and the documents of usual images fit into one
_MAXIMUM_WINDOWS = 64


def inspect_reference(reference: Reference, workplace: Workplace) -> Inspection:
    """The report that the pulled image would give."""
    source = classify(reference)
    if source.path:
        return inspect_path(source.path)
    if source.is_local:
        image = open_any_image(reference, workplace)
        try:
            return _inspect_image(image)
        finally:
            image.close()
    with workplace.open_store() as store:
        source = source.look_up(lambda: resolve(reference, workplace, store))
        if not source.layers:
            return inspect_remote_sif(source, workplace, store).inspection
        refuse_artifacts(source.layers)
        _, config = read_config(source.layers, store)
        return _describe(config, make_record(source.layers, config, workplace.platform))


def _inspect_image(image: ImageSource) -> Inspection:
    if image.config is None:
        raise UsageError("cannot inspect this image: it has no config")
    return _describe(image.config, image.record)


def _describe(config: ImageConfig, record: SourceRecord) -> Inspection:
    section = describe(config, record).oci_config  # in the order a SIF keeps it
    return Inspection(inspect_config(config, record), json.loads(section) if section else None)


@dataclass(frozen=True, slots=True)
class _RemoteInspection:
    """What a remote SIF says about itself; `path` is its copy in the cache, if there is one."""

    inspection: Inspection
    path: Path | None = None
    size: int | None = None
    architecture: str = ""  # as its header states it; empty: unknown


def inspect_remote_sif(
    source: Source, workplace: Workplace, store: Store, *, offline: bool = False
) -> _RemoteInspection:
    """Inspect a SIF where it is, by a few range requests, or its copy in the cache."""
    reference, sif = source.reference, find_sif_source(source, workplace, store, offline=offline)
    stored = store.find_image(sif.key) or (store.images.find_delivered(sif.key) if offline else None)
    if stored is not None:
        return _RemoteInspection(inspect_path(stored), stored, sif.size)
    if offline:
        raise ImageNotFound(
            f"{reference.redacted} is not in the cache, and --offline forbids to fetch it",
            hint=f"fetch it without --offline: kedge pull {reference.redacted}",
        )
    if sif.size is None:
        raise _pull_first(reference.redacted, "its server does not send its size")
    file = cast("BinaryIO", _RemoteImageFile(sif, sif.size, reference.redacted))
    inspection = inspect_file(file, reference.redacted)
    is_sif = identify_file(file) is FileKind.SIF
    architecture = SifReader(file, reference.redacted).header.architecture if is_sif else "unknown"
    return _RemoteInspection(inspection, None, sif.size, "" if architecture == "unknown" else architecture)


def _pull_first(where: str, why: str) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"cannot inspect {where} remotely: {why}",
        hint=f"pull it, then inspect the file: kedge pull {where}",
    )


class _RemoteImageFile(SeekableBytes):
    """A remote file, read in a few large windows; nothing of it is verified."""

    def __init__(self, source: SifSource, size: int, where: str) -> None:
        super().__init__(size)
        self._source = source
        self._where = where
        self._windows: dict[int, bytes] = {}

    def read(self, size: int = -1) -> bytes:
        """Return as many bytes as there are, up to `size`."""
        end = self._size if size < 0 else min(self._size, self._position + size)
        out = bytearray()
        while self._position < end:
            number, start = divmod(self._position, _WINDOW)
            piece = self._window(number)[start : start + end - self._position]
            if not piece:
                break
            out += piece
            self._position += len(piece)
        return bytes(out)

    def _window(self, number: int) -> bytes:
        if number not in self._windows:
            if len(self._windows) >= _MAXIMUM_WINDOWS:
                raise _pull_first(self._where, "its documents are spread over too many places")
            self._windows[number] = self._fetch(number * _WINDOW)
        return self._windows[number]

    def _fetch(self, offset: int) -> bytes:
        with self._source.open_at(offset) as stream:
            if stream.offset != offset:
                raise _pull_first(self._where, "its server does not support range requests")
            data = bytearray()
            for piece in stream:
                data += piece
                if len(data) >= _WINDOW:
                    break
        return bytes(data[:_WINDOW])
