# SPDX-License-Identifier: BSD-3-Clause
"""The lock file of a build: which digests the names of its bases meant, so that the next build takes the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kedge.errors import InvalidRecipe
from kedge.system.files import explained, write_atomically

_FORMAT = 1
_LARGEST = 1 << 20


def read_lock(path: Path) -> dict[str, str]:
    """The digests in a lock file by reference; none where there is no file."""
    if not path.exists():
        return {}
    with explained(path), path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        document = json.loads(data)
        bases = document["bases"]
        if document["version"] != _FORMAT or not isinstance(bases, dict):
            raise ValueError(document["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidRecipe(
            f"{path} is not a lock file of kedge",
            context={"file": str(path)},
            hint="remove it, and the next build with --lock writes it anew",
        ) from None
    return {str(name): str(digest) for name, digest in bases.items()}


def write_lock(path: Path, bases: Mapping[str, str]) -> None:
    """Write the digests, unless the file has them."""
    if bases == read_lock(path):
        return
    document = {"version": _FORMAT, "bases": dict(sorted(bases.items()))}
    write_atomically(path, json.dumps(document, indent=2).encode() + b"\n")
