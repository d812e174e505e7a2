# SPDX-License-Identifier: BSD-3-Clause
"""Shows settings with their sources, and changes the user's configuration file without disturbing the rest of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kedge.base.toml_text import write_text
from kedge.errors import InvalidSetting
from kedge.system.exclusive_change import sole_change
from kedge.system.files import explained, write_atomically
from kedge.system.settings import (
    SETTINGS,
    Setting,
    Settings,
    SettingSource,
    check_key,
    parse_value,
    read_file,
    user_file,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting as `config show` prints it."""

    key: str
    value: object
    text: str
    source: SettingSource

    def as_dict(self) -> dict[str, object]:
        """The setting as JSON has it."""
        value = str(self.value) if isinstance(self.value, Path) else self.value
        return {"key": self.key, "value": value, "source": self.source.kind, "where": self.source.where}


def list_settings(settings: Settings) -> list[Shown]:
    """Return all settings, in the order of the table."""
    return [get_setting(settings, key) for key in SETTINGS]


def get_setting(settings: Settings, key: str) -> Shown:
    """Return one setting; an unknown key is an error that names the nearest."""
    setting = check_key(key, where="kedge config", writable=False)
    value = getattr(settings, key)
    return Shown(key, value, _format_value(setting, value), settings.sources[key])


def _format_value(setting: Setting, value: object) -> str:
    """The value as it would be written in a file or a variable; `-` where there is none."""
    if value is None:
        return {"size": "none", "count or auto": "auto"}.get(setting.kind, "-")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if setting.kind == "size" and isinstance(value, int):
        return format_size(value)
    return str(value)


def format_size(size: int) -> str:
    """The shortest exact form: 21474836480 is 20G."""
    for power, letter in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{letter}"
    return str(size)


def set_setting(key: str, text: str, environ: Mapping[str, str], *, dry_run: bool = False) -> Path:
    """Write one key into the user's file, keeping comments and order; returns the file. Atomic.

    With `dry_run` nothing is written, and everything is refused that would be refused.
    """
    _check_value(key, text, environ)  # before anything is made for it
    return change_setting(key, lambda: text, environ, dry_run=dry_run)


def change_setting(key: str, choose: Callable[[], str], environ: Mapping[str, str], *, dry_run: bool = False) -> Path:
    """Set a key to the value that `choose` returns; it may read the settings, which nobody else changes meanwhile."""
    path = user_file(environ)
    with _sole_change(path, dry_run=dry_run):
        text = choose()
        setting = _check_value(key, text, environ)
        after = _replace_line(_read_text(path), key, f"{key} = {_write_value(setting, text)}")
        _save(path, after, key, is_there=True, dry_run=dry_run)
    return path


def _check_value(key: str, text: str, environ: Mapping[str, str]) -> Setting:
    setting = check_key(key, where="kedge config set")
    parse_value(setting, text, SettingSource("user", "kedge config set"), environ)
    return setting


def unset_setting(key: str, environ: Mapping[str, str], *, dry_run: bool = False) -> Path:
    """Remove one key from the user's file; nothing happens when it is not there. Atomic."""
    check_key(key, where="kedge config unset")
    path = user_file(environ)
    if key not in read_file(path):
        return path  # and nothing is made for a file that is not there
    with _sole_change(path, dry_run=dry_run):
        before = _read_text(path)
        if key in read_file(path):
            _save(path, _replace_line(before, key, None), key, is_there=False, dry_run=dry_run)
    return path


def _sole_change(path: Path, *, dry_run: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if dry_run else sole_change(path.resolve())


def _read_text(path: Path) -> str:
    read_file(path)  # refuses a file that is broken already, by line
    if not path.exists():
        return ""
    with explained(path):
        return path.read_text()


def _write_value(setting: Setting, text: str) -> str:
    if setting.kind == "yes or no":
        return "true" if text.lower() in ("1", "true", "yes", "on") else "false"
    if setting.kind.startswith("count") and text.isdecimal():
        return str(int(text))
    return write_text(text)


def _replace_line(text: str, key: str, line: str | None) -> str:
    """The text with the key's line replaced, removed (None) or appended; a comment behind the value stays."""
    value = r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^#\n\"']*)"
    pattern = rf"^[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*=[ \t]*{value}(?P<rest>[^\n]*)\n?"
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        if line is None:
            return text
        return text + ("\n" if text and not text.endswith("\n") else "") + line + "\n"
    rest = match.group("rest").strip()
    new = "" if line is None else line + (f"  {rest}" if rest else "") + "\n"
    return text[: match.start()] + new + text[match.end() :]


def _is_only_change(before: Mapping[str, tuple[object, int | None]], text: str, key: str, *, is_there: bool) -> bool:
    """Whether the text is TOML in which nothing but the key is other than before: a line may be part of a text."""
    import tomllib  # late: only a change needs it

    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    others = {name: value for name, (value, _) in before.items() if name != key}
    return (key in after) is is_there and {name: after[name] for name in after if name != key} == others


def _save(path: Path, text: str, key: str, *, is_there: bool, dry_run: bool) -> None:
    if not _is_only_change(read_file(path), text, key, is_there=is_there):
        raise InvalidSetting(
            f"{path}: '{key}' or another value goes over several lines, which cannot be changed from here",
            hint="change it in an editor",
        )
    if dry_run:
        return
    target = path.resolve()  # a link into somebody's collection of dotfiles stays a link
    with explained(target.parent):
        known = target.stat().st_mode & 0o777 if target.exists() else None
    write_atomically(target, text.encode(), mode=known or 0o644, exact=known is not None)
