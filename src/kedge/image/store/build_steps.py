# SPDX-License-Identifier: BSD-3-Clause
"""Records of build steps: which layer a step gave, by the key of all that it depends on.

A record is a small file, and its layer a blob. A record whose blob is gone is no hit. Of several builds that come to
the same step at once one does it, under a lease, and the others wait for its record.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import NOTHING, frozen
from kedge.base.manifest import Descriptor
from kedge.base.patterns import late_pattern
from kedge.errors import InvalidReference
from kedge.image.store.blobs import Blobs
from kedge.image.store.image_records import read_fields
from kedge.image.store.layout import Layout, is_listed
from kedge.image.store.lease import Lease, Patience, acquire
from kedge.image.store.use_marks import Use

_FORMAT = 1
_KEY = late_pattern(r"[0-9a-f]{64}")


@frozen
class StepRecord:
    """What a step gave: a layer, or none if it changed no file."""

    key: str  # 64 hexadecimal digits
    layer: Descriptor | None
    diff_id: Digest | None
    created_by: str = ""  # the instruction, for the image's history and for `kedge cache list`
    extra: Mapping[str, Any] = NOTHING  # what the builder wants to know the next time


class BuildSteps:
    """The records of one cache."""

    def __init__(self, layout: Layout, blobs: Blobs) -> None:
        self._layout = layout
        self._blobs = blobs

    def path(self, key: str) -> Path:
        """Where the record with that key stands, if it is there."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a key of a step: {key!r}")
        return self._layout.root / "steps" / f"{key}.json"

    def find(self, key: str) -> StepRecord | None:
        """The record, if its layer is there; both count as used now."""
        record = read_step(self.path(key))
        if record is None or record.key != key:
            return None
        if record.layer is not None:
            if not self._blobs.is_present(record.layer):
                return None
            self._blobs.touch(record.layer.digest)
        with contextlib.suppress(OSError):  # not in a cache that we may only read
            os.utime(self.path(key))
        return record

    def write(self, record: StepRecord) -> None:
        """Keep a record; its layer is in the cache by now."""
        layer = record.layer
        fields = {
            "format": _FORMAT,
            "key": record.key,
            "layer": layer.as_json() if layer is not None else None,
            "diff_id": str(record.diff_id) if record.diff_id is not None else None,
            "created_by": record.created_by,
            "extra": dict(record.extra),
        }
        self._layout.folder("steps")
        self._layout.write(self.path(record.key), json.dumps(fields).encode() + b"\n")

    def drop(self, key: str) -> None:
        """Forget a record; its layer stays until it is evicted."""
        with contextlib.suppress(OSError):
            self.path(key).unlink()

    def claim(
        self, key: str, notify: Callable[[str], None] | None = None, *, is_anew: bool = False
    ) -> Lease | StepRecord:
        """A lease, a context manager, to do the step under; or the record that another process wrote meanwhile.

        With `is_anew` a record that is there does not count.
        """
        path = self.path(key)

        def is_done() -> bool:
            if is_anew:
                return False
            # listing asks the server, where a client may remember for a minute that there is no such file
            return self.find(key) is not None or (is_listed(path) and self.find(key) is not None)

        self._layout.folder("leases")
        while True:
            lease = acquire(self._layout.lease(path.stem), self._layout.folder("tmp"), is_done, Patience(notify=notify))
            if lease is not None:
                return lease
            record = self.find(key)
            if record is not None:
                return record

    def use_layer(self, layer: Descriptor) -> Use:
        """Mark a layer as in use, so that it is not evicted until the returned context ends."""
        return Use(self._layout, layer.digest.hex)


def read_step(path: Path) -> StepRecord | None:
    """The record in a file; None for one that is missing, damaged or of another version."""
    fields = read_fields(path)
    if fields is None or fields.get("format") != _FORMAT:
        return None
    layer, extra = fields.get("layer"), fields.get("extra")
    try:
        diff_id = Digest.parse(str(fields["diff_id"])) if fields.get("diff_id") is not None else None
        descriptor = _read_layer(layer) if layer is not None else None
    except (InvalidReference, KeyError, TypeError, ValueError):
        return None
    if (descriptor is None) != (diff_id is None) or not isinstance(extra, dict):
        return None
    return StepRecord(str(fields.get("key")), descriptor, diff_id, str(fields.get("created_by")), extra)


def drop_orphaned_steps(layout: Layout) -> None:
    """Remove records whose layer is no longer in the cache."""
    try:
        paths = [Path(entry.path) for entry in os.scandir(layout.root / "steps")]
    except OSError:
        return
    for path in paths:
        record = read_step(path)
        if record is not None and (record.layer is None or layout.blob(record.layer.digest).exists()):
            continue
        with contextlib.suppress(OSError):
            path.unlink()


def _read_layer(fields: Any) -> Descriptor:
    size = fields["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError("not the size of a layer")
    return Descriptor(str(fields["mediaType"]), Digest.parse(str(fields["digest"])), size)
