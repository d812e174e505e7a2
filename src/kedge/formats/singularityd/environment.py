# SPDX-License-Identifier: BSD-3-Clause
"""ENV of an image config as the shell file 10-docker2singularity.sh.

Every variable keeps a value the shell already has, except PATH. Values are escaped once, as Apptainer does since 1.5;
1.4 and older escape twice and lose `$` and backticks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kedge.formats.singularityd.runscript import escape_double

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


def render_environment(entries: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The file's text, and one warning for each entry that a shell cannot take."""
    values: dict[str, str | None] = {}
    warnings: list[str] = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not _NAME.match(name):
            warnings.append(f"the environment variable '{name[:80]}' is left out: a shell cannot have one of this name")
        elif "\0" in value:
            warnings.append(f"the environment variable '{name}' is left out: its value has a NUL character")
        else:
            values[name] = value if equals else None  # the last of several wins, as with Docker
    lines = ["#!/bin/sh", *(_export(name, value) for name, value in values.items())]
    return "\n".join(lines) + "\n", tuple(warnings)


def _export(name: str, value: str | None) -> str:
    if value is None:
        return f'export {name}="${{{name}:-}}"'
    if name == "PATH":
        return f'export PATH="{escape_double(value)}"'
    return f'export {name}="${{{name}:-"{escape_double(value)}"}}"'
