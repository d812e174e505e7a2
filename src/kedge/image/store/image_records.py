# SPDX-License-Identifier: BSD-3-Clause
"""The record of a cached image: its digest, and how to see that it was not changed since.

The change time (ctime) is the witness: every write moves it, and no program can set it back. Only where it, the inode
and the number of names are as recorded the bytes are believed without being hashed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.patterns import late_pattern
from kedge.image.store.layout import Layout

_RECORD_LIMIT = 64 << 10
_HEX = late_pattern(r"[0-9a-f]{64}")


@frozen
class ImageRecord:
    """The record of an image in the cache; `digest` is empty in those of versions that took none."""

    key: str
    digest: str  # SHA-256, hexadecimal
    size: int
    inode: int = 0
    changed: int = 0  # ctime in nanoseconds
    is_linked: bool = False  # was handed out as a hard link once: somebody may have it open for writing

    @classmethod
    def read(cls, image: Path) -> ImageRecord | None:
        """The record beside an image; None when it is missing or damaged, and then the image does not count."""
        fields = read_fields(record_path(image))
        if fields is None:
            return None
        numbers = [fields.get(name) for name in ("size", "inode", "ctime_ns")]
        size, inode, changed = (number if isinstance(number, int) else -1 for number in numbers)
        key = str(fields.get("key"))
        return cls(key, read_digest(fields), size, inode, changed, fields.get("linked") is not False)

    def write(self, layout: Layout, image: Path, status: os.stat_result) -> None:
        """Write it beside the image, which was so when it had these bytes for certain."""
        fields = {
            "key": self.key,
            "digest": f"sha256:{self.digest}",
            "size": status.st_size,
            "inode": status.st_ino,
            "ctime_ns": status.st_ctime_ns,
            "linked": self.is_linked,
        }
        layout.write(record_path(image), json.dumps(fields).encode() + b"\n")

    def is_witnessed(self, status: os.stat_result) -> bool:
        """Whether the file is certain to have the recorded bytes, without reading them."""
        seen = (status.st_size, status.st_ino, status.st_ctime_ns, status.st_nlink)
        return not self.is_linked and bool(self.digest) and seen == (self.size, self.inode, self.changed, 1)


def record_path(image: Path) -> Path:
    """The record that stands beside an image."""
    return image.with_suffix(".json")


def read_fields(path: Path) -> dict[str, object] | None:
    """A small JSON object; None when it is missing or damaged."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(_RECORD_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def read_digest(fields: dict[str, object]) -> str:
    """The SHA-256 of a record; empty when it has none."""
    algorithm, _, digest = str(fields.get("digest")).partition(":")
    return digest if algorithm == "sha256" and _HEX.fullmatch(digest) else ""
