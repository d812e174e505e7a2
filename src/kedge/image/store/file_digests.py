# SPDX-License-Identifier: BSD-3-Clause
"""Digests of the files of a build context, so that a build does not read again what has not changed.

A file is recognised by device, inode, size and the times of its last changes; the kernel sets the last of them, and
nobody can choose it. One file of the cache, `digests/<hash of the context's path>`, has rows of fixed size.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kedge.errors import KedgeError
from kedge.image.store.layout import Layout, hash_text

FileIdentity = tuple[int, int, int, int, int]  # device, inode, size, mtime and ctime in nanoseconds

_HEADER = b"kedge file digests 1\n"
_IDENTITY = struct.Struct("<2Q3q")
_DIGEST = 32  # bytes
_ROW = _IDENTITY.size + _DIGEST
_MOST_ROWS = 300_000  # of files that were there once
_YOUNG = 2 * 10**9  # nanoseconds: who changes a file again in the same tick of its clock leaves no trace


class FileDigests:
    """What is known of the files of one context; a table that is missing or damaged is an empty one."""

    def __init__(self, layout: Layout, context: str) -> None:
        self._layout = layout
        self._path = layout.root / "digests" / hash_text(context)
        self._rows: dict[bytes, bytes] | None = None
        self._used: set[bytes] = set()

    def find(self, identities: Iterable[FileIdentity]) -> dict[FileIdentity, str]:
        """The digests, hexadecimal, of those files that are known."""
        rows = self._load()
        known = {}
        for identity in identities:
            key = _IDENTITY.pack(*identity)
            digest = rows.get(key)
            if digest is not None:
                known[identity] = digest.hex()
                self._used.add(key)
        return known

    def add(self, digests: Mapping[FileIdentity, str], began: int) -> None:
        """Remember files that were hashed since `began`, in nanoseconds; not those that changed just before."""
        new = {
            _IDENTITY.pack(*identity): bytes.fromhex(digest)
            for identity, digest in digests.items()
            if max(identity[3:]) < began - _YOUNG
        }
        if not new:
            return
        rows = self._load()
        if len(rows) + len(new) > _MOST_ROWS:
            rows = {key: digest for key, digest in rows.items() if key in self._used}
        self._used |= new.keys()
        self._rows = rows = rows | new
        body = _HEADER + b"".join(key + digest for key, digest in rows.items())
        with contextlib.suppress(KedgeError, OSError):  # a cache that is full, or that we may only read
            self._layout.folder("digests")
            self._layout.write(self._path, body + hashlib.sha256(body).digest())

    def _load(self) -> dict[bytes, bytes]:
        if self._rows is None:
            self._rows = _read_rows(self._path)
        return self._rows


def now() -> int:
    """The time for `FileDigests.add`, before the first file is read."""
    return time.time_ns()


def _read_rows(path: Path) -> dict[bytes, bytes]:
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return {}
    body, check = data[:-_DIGEST], data[-_DIGEST:]
    if not body.startswith(_HEADER) or hashlib.sha256(body).digest() != check:
        return {}
    first, middle = len(_HEADER), _IDENTITY.size
    return {body[at : at + middle]: body[at + middle : at + _ROW] for at in range(first, len(body), _ROW)}
