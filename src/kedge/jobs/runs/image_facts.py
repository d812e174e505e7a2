# SPDX-License-Identifier: BSD-3-Clause
"""Which image a run has: digest, fingerprint and recipe, all of them quick to find."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from kedge.base.image_argument import find_path
from kedge.base.secret_text import redact
from kedge.errors import KedgeError
from kedge.image.image_file import identify, make_absolute
from kedge.image.node_cache import find_by_reference

TYPE_CHECKING = False  # as typing has it, whose import costs every recorded run
if TYPE_CHECKING:
    from typing import Any

_EDGE = 1 << 20  # bytes at both ends of a file: headers, and the tables of names and times
_DIGEST = "org.opencontainers.image.base.digest"  # kedge and Apptainer note the manifest so


def describe_image(word: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The image that `word` names now; what is unknown is None.

    `digest` is that of its manifest, or of its content on this node. `fingerprint` is for files: their size and both
    ends, where a format has its header and its tables, because hashing gigabytes would disturb the run.
    """
    known: dict[str, Any] = dict.fromkeys(("path", "digest", "fingerprint", "size", "machine", "recipe"))
    known["name"] = redact(word)
    path = find_path(word)
    root = make_absolute(path) if path else find_by_reference(word, os.uname().machine, environ)
    if not root:
        return known
    known["path"] = root if path else None
    with contextlib.suppress(KedgeError):
        image = identify(root)
        known["machine"] = image.machine or None
    if Path(root).is_file():
        known |= _fingerprint(root)
    if not path:
        known["digest"] = Path(root).parent.name
    return known | _read_notes(root, known["digest"])


def _fingerprint(path: str) -> dict[str, Any]:
    import hashlib  # late: a library of its own, which the process that starts the program does without

    hashed = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123 - as the start reads it
        size = os.fstat(file.fileno()).st_size
        hashed.update(str(size).encode() + file.read(_EDGE))
        file.seek(max(size - _EDGE, 0))
        hashed.update(file.read(_EDGE))
    return {"size": size, "fingerprint": f"sha256:{hashed.hexdigest()}"}


def _read_notes(root: str, digest: str | None) -> dict[str, Any]:
    """What the image says of itself: the manifest it was made from, and how it was built."""
    from kedge.image.inspect import inspect_path  # late: readers of all formats

    try:
        report = inspect_path(Path(root)).report
    except (KedgeError, OSError):
        return {"digest": digest}
    import hashlib  # late: as above

    text = json.dumps(report.build, sort_keys=True) if report.build else report.deffile
    recipe: dict[str, object] | None = None
    if text:
        noted = report.build.get("recipe")
        recipe = dict(noted) if isinstance(noted, dict) else {}
        recipe["digest"] = f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"
    return {"digest": report.labels.get(_DIGEST) or digest, "recipe": recipe}
