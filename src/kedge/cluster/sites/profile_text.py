# SPDX-License-Identifier: BSD-3-Clause
"""Reads the TOML of a profile. Those that come with kedge were read when it was made: `tomllib` costs a start 12 ms.

profiles.json holds their tables by the size and checksum of their text, so that a changed profile is read anew;
`make tables` writes it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    from typing import Any

KNOWN = Path(__file__).parent / "profiles.json"
_known_tables: dict[str, dict[str, Any]] = {}


def find_known_table(text: str) -> dict[str, Any] | None:
    """The table of a text that kedge comes with; a copy, whose keys are the caller's to remove."""
    if not _known_tables:
        try:
            _known_tables.update(json.loads(KNOWN.read_bytes()))
        except (OSError, ValueError):  # TOML says the same
            _known_tables[""] = {}
    table = _known_tables.get(_name_text(text))
    return None if table is None else dict(table)


def parse_toml(text: str) -> dict[str, Any]:
    """The table of any text; raises ValueError (`tomllib.TOMLDecodeError`) or RecursionError."""
    table = find_known_table(text)
    if table is not None:
        return table
    import tomllib  # late: profiles of other sites alone need it

    return tomllib.loads(text)


def format_known_tables(texts: Iterable[str]) -> str:
    """The text of profiles.json."""
    import tomllib  # late: only `make tables` writes it

    lines = [f"{json.dumps(_name_text(text))}: {json.dumps(tomllib.loads(text))}" for text in texts]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _name_text(text: str) -> str:
    data = text.encode(errors="surrogatepass")
    return f"{len(data)}-{zlib.crc32(data):08x}"
