# SPDX-License-Identifier: BSD-3-Clause
"""Which CUDA toolkit a directory holds, by NVIDIA's file in it: version.json since CUDA 11.1, version.txt before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kedge.base.versions import order
from kedge.compat.traits import UNKNOWN, Fact
from kedge.image.clean_config import clean_text

_LARGEST = 64 << 10  # bytes; theirs have three thousand
_LONGEST = 30
_OLD = re.compile(rb"CUDA Version (\d+(?:\.\d+)+)")


def read_toolkit(folder: str, read: Callable[[str, int], bytes | None]) -> Fact:
    """The toolkit's version and the file that says it; `read` gives the first bytes of a file, None where it is not."""
    path = f"{folder}/version.json"
    try:
        version = json.loads(read(path, _LARGEST) or b"null")["cuda"]["version"]
    except (ValueError, RecursionError, KeyError, TypeError):
        version = None
    if isinstance(version, str) and order(version):
        return Fact(clean_text(version, _LONGEST), f"file {path}")
    path = f"{folder}/version.txt"
    match = _OLD.match(read(path, _LARGEST) or b"")
    return Fact(clean_text(match[1].decode(), _LONGEST), f"file {path}") if match else UNKNOWN
