# SPDX-License-Identifier: BSD-3-Clause
"""What was found out about files, so that it is not found out again while they are as they were.

One file of the cache, `facts/<hash of the subject>`, has the newest rows of one subject, such as the path of an image.
The key of a row names all that its facts depend on: states of files, variables, the version of kedge.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any

from kedge.errors import KedgeError
from kedge.image.store.layout import Layout, hash_text

_MOST_ROWS = 16  # of one subject
_LARGEST = 1 << 20
_CHECK = 64  # letters of a digest


class FileFacts:
    """The rows of one subject; a file that is missing or damaged has none."""

    def __init__(self, layout: Layout, subject: str) -> None:
        self._layout = layout
        self._path = layout.root / "facts" / hash_text(subject)

    def find(self, key: str) -> Any:
        """Return what was kept under the key; None where nothing was."""
        return self._read_rows().get(hash_text(key))

    def keep(self, key: str, facts: Any) -> None:
        """Keep what JSON can hold; the oldest row goes where there are too many."""
        rows = self._read_rows()
        rows.pop(hash_text(key), None)
        rows[hash_text(key)] = facts
        body = json.dumps(dict(list(rows.items())[-_MOST_ROWS:])).encode()
        with contextlib.suppress(KedgeError, OSError):  # a cache that is full, or that we may only read
            self._layout.folder("facts")
            self._layout.write(self._path, hashlib.sha256(body).hexdigest().encode() + body)

    def _read_rows(self) -> dict[str, Any]:
        try:
            with self._path.open("rb") as file:
                data = file.read(_LARGEST)
        except OSError:
            return {}
        body = data[_CHECK:]
        if hashlib.sha256(body).hexdigest().encode() != data[:_CHECK]:
            return {}
        rows = json.loads(body)
        return rows if isinstance(rows, dict) else {}
