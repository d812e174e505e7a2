# SPDX-License-Identifier: BSD-3-Clause
"""One setting of the configuration files, read without what reads all of them: for settings that every start asks."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def read_configured(name: str, environ: Mapping[str, str]) -> str:
    """The text that the user's file has for it, else the site's; empty when neither says anything."""
    lines = read_lines(name, environ)
    return (_read_plain(name, lines) or _load(name, environ)) if lines else ""


def read_lines(name: str, environ: Mapping[str, str]) -> list[str]:
    """The lines with a name in them, of the first file that has any; what another user wrote is no setting."""
    for path in list_files(environ):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = "" if _is_foreign(file.fileno()) else file.read(1 << 20)
        except (OSError, ValueError):
            continue
        lines = [line.strip() for line in text.split("\n") if name in line]
        lines = [line for line in lines if not line.startswith("#")]
        if lines:
            return lines
    return []


def _is_foreign(file: int) -> bool:
    from kedge.posix.private import find_foreign_hand  # late: many have no such file

    return bool(find_foreign_hand(os.fstat(file)))


def list_files(environ: Mapping[str, str]) -> tuple[str, str]:
    """The user's file and the site's. A relative HOME would mean the current directory: its files are no settings."""
    home, base = environ.get("HOME", ""), environ.get("XDG_CONFIG_HOME", "")
    below = base if base.startswith("/") else f"{home if home.startswith('/') else ''}/.config"
    return f"{below}/kedge/config.toml", environ.get("KEDGE_SITE_CONFIG") or "/etc/kedge/config.toml"


def _read_plain(name: str, lines: list[str]) -> str:
    """The value of one line `name = "value"` or `name = 5`; empty when it takes more to read it."""
    key, _, value = lines[0].partition("=")
    value = value.strip()
    if len(lines) == 1 and key.strip() == name and value.isascii() and value.isdigit():
        return value
    if len(lines) > 1 or key.strip() != name or len(value) < 3 or value[0] != value[-1] or value[0] not in "\"'":
        return ""
    return "" if any(letter in value[1:-1] for letter in "$\\\"'") else value[1:-1]


def _load(name: str, environ: Mapping[str, str]) -> str:
    from kedge.settings import Settings  # late: dataclasses and TOML cost more than a container's start

    return str(getattr(Settings.load({}, environ), name) or "")
