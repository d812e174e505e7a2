# SPDX-License-Identifier: BSD-3-Clause
"""Reads single settings from the configuration files by their lines: a start of a container cannot pay for TOML."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def read_configured(name: str, environ: Mapping[str, str]) -> str:
    """The text that the user's file has for it, else the site's; empty when neither says anything."""
    return read_settings((name,), environ).get(name, "")


def read_settings(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """Read several settings, in one look at the files."""
    values: dict[str, str] = {}
    for path in list_files(environ):
        text = _read_file(path)
        for name in names:
            lines = _select_lines(name, text) if name not in values and name in text else []
            if lines:
                values[name] = _read_plain(name, lines) or load_setting(name, environ)
    return {name: value for name, value in values.items() if value}


def read_lines(name: str, environ: Mapping[str, str]) -> list[str]:
    """The lines with a name in them, of the first file that has any; what another user wrote is no setting."""
    for path in list_files(environ):
        text = _read_file(path)
        lines = _select_lines(name, text) if name in text else []
        if lines:
            return lines
    return []


def _read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "" if _is_foreign(file.fileno()) else file.read(1 << 20)
    except (OSError, ValueError):
        return ""


def _select_lines(name: str, text: str) -> list[str]:
    lines = [line.strip() for line in text.split("\n") if name in line]
    return [line for line in lines if not line.startswith("#")]


def _is_foreign(file: int) -> bool:
    from kedge.system.private_files import find_foreign_hand  # late: many have no such file

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


def load_setting(name: str, environ: Mapping[str, str]) -> str:
    """The text of a setting as the full reader gives it: checked, and refused where the file is wrong."""
    from kedge.system.settings import Settings  # late: dataclasses and TOML cost more than a container's start

    return str(getattr(Settings.load({}, environ), name) or "")
