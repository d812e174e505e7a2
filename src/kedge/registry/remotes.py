# SPDX-License-Identifier: BSD-3-Clause
"""Apptainer's remote.yaml: which library server is in use, and the user's token for it.

The file is written by Apptainer alone and has a fixed shape, two levels of `key: value`; a YAML reader is not needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kedge.registry.secret import Secret

_LINE = re.compile(r"( *)([^\s:#][^:]*|\"[^\"]*\"):(?:\s+(.*?))?\s*\Z")
_MAXIMUM = 1 << 20


@dataclass(frozen=True, slots=True)
class Remote:
    """One endpoint: `uri` is a host such as cloud.sylabs.io, whose services are announced under a known address."""

    name: str
    uri: str
    token: Secret | None = None


def active_remote(home: Path) -> Remote | None:
    """The remote that Apptainer or SingularityCE has in use for this user; None when there is none."""
    for folder in (".apptainer", ".singularity"):
        try:
            with (home / folder / "remote.yaml").open("rb") as file:
                text = file.read(_MAXIMUM).decode(errors="replace")
        except OSError:
            continue
        remote = parse_remotes(text)
        if remote is not None:
            return remote
    return None


def parse_remotes(text: str) -> Remote | None:
    """The active remote of a remote.yaml, or None when it names none that is described."""
    active, section, name = "", "", ""
    remotes: dict[str, dict[str, str]] = {}
    widths: list[int] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        width, key, value = len(match[1]), match[2].strip().strip('"'), _unquote(match[3] or "")
        while widths and widths[-1] >= width:
            widths.pop()
        widths.append(width)
        if len(widths) == 1:
            section = key
            active = value if key == "Active" else active
        elif section == "Remotes" and len(widths) == 2:
            name = key
            remotes[name] = {}
        elif section == "Remotes" and len(widths) == 3:
            remotes[name][key] = value
    fields = remotes.get(active)
    if not fields or not fields.get("URI"):
        return None
    return Remote(active, fields["URI"], Secret(fields["Token"]) if fields.get("Token") else None)


def _unquote(value: str) -> str:
    text = value.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text.split(" #", 1)[0].rstrip()
