# SPDX-License-Identifier: BSD-3-Clause
"""Records of images that the cache gave away: a file of the user's has the only bytes, and the cache their digest.

The file is the user's own and may change, move or vanish: it is read only for a copy that is hashed on the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from kedge.base.frozen import frozen, replace
from kedge.errors import KedgeError
from kedge.image.store.image_records import read_digest, read_fields
from kedge.image.store.layout import Layout, hash_text

_MOST_PATHS = 8  # of the newest copies; one would do


@frozen
class DeliveryRecord:
    """Which bytes, and where users have them."""

    key: str
    digest: str  # SHA-256, hexadecimal
    size: int
    paths: tuple[Path, ...]


class Deliveries:
    """The records of one cache."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def path(self, key: str) -> Path:
        """Where the record with that key stands, if it is there."""
        return self._layout.root / "records" / f"{hash_text(key)}.json"

    def read(self, key: str) -> DeliveryRecord | None:
        """The record of an image; None when there is none, or it is damaged."""
        with contextlib.suppress(OSError):
            os.utime(self.path(key))  # when it was used last
        return read_delivery(self.path(key))

    def note(self, record: DeliveryRecord) -> None:
        """Add the paths of a record to what is known, where they are on the cache's file system: others may hang.

        The users have their files by now: that none can be written, in a full cache or one of others, is no error.
        """
        known = self.read(record.key)
        with contextlib.suppress(KedgeError, OSError):
            device = self._layout.folder("records").stat().st_dev
            fresh = [path.absolute() for path in record.paths if path.stat().st_dev == device]
            if known is not None and known.digest == record.digest:
                fresh += [path for path in known.paths if path not in fresh]
            if fresh:
                self._write(replace(record, paths=tuple(fresh[:_MOST_PATHS])))

    def forget(self, key: str, path: Path) -> None:
        """Take out one path, and the record with its last; in a cache that we may only read nothing happens."""
        known = self.read(key)
        if known is None:
            return
        left = replace(known, paths=tuple(known_path for known_path in known.paths if known_path != path))
        with contextlib.suppress(KedgeError, OSError):
            if left.paths:
                self._write(left)
            else:
                self.path(key).unlink(missing_ok=True)

    def _write(self, record: DeliveryRecord) -> None:
        fields = {
            "key": record.key,
            "digest": f"sha256:{record.digest}",
            "size": record.size,
            "paths": [str(path) for path in record.paths],
        }
        self._layout.write(self.path(record.key), json.dumps(fields).encode() + b"\n")


def read_delivery(path: Path) -> DeliveryRecord | None:
    """The record in a file; None for one that is missing or damaged."""
    fields = read_fields(path)
    if fields is None:
        return None
    size, paths = fields.get("size"), fields.get("paths")
    digest = read_digest(fields)
    if not digest or not isinstance(size, int) or not isinstance(paths, list):
        return None
    known_paths = tuple(
        Path(known_path) for known_path in paths if isinstance(known_path, str) and known_path.startswith("/")
    )
    return DeliveryRecord(str(fields.get("key")), digest, size, known_paths[:_MOST_PATHS])


def open_delivered(path: Path, size: int) -> BinaryIO | None:
    """The user's file, if it may still be the one: a regular file of that size. Links and pipes are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size == size:
        return os.fdopen(descriptor, "rb", buffering=0)
    os.close(descriptor)
    return None
