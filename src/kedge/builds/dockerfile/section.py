# SPDX-License-Identifier: BSD-3-Clause
"""The `config` object of an image while instructions change it, key by key as `docker build` writes it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEFAULT_SHELL = ("/bin/sh", "-c")
# What an image config holds today; Docker of old wrote the state of a container as well, and `docker build` drops that.
_LISTS = ("Env", "Cmd", "Entrypoint", "OnBuild", "Shell")
_MAPS = ("Labels", "ExposedPorts", "Volumes")
_KEYS = frozenset((*_LISTS, *_MAPS, "User", "WorkingDir", "StopSignal", "ArgsEscaped", "Healthcheck"))


class SectionState:
    """A copy of the base's section, which instructions change."""

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._values = {key: value for key, value in base.items() if key in _KEYS and value}
        for key in _MAPS:
            self._values[key] = dict(self._values.get(key) or {})
        for key in _LISTS:
            self._values[key] = [str(word) for word in self._values.get(key) or ()]
        self.environment = dict(str(entry).partition("=")[::2] for entry in self._values["Env"])
        self.environment.setdefault("PATH", DEFAULT_PATH)

    @property
    def directory(self) -> str:
        """The working directory as it is in the section."""
        return str(self._values.get("WorkingDir") or "")

    @property
    def user(self) -> str:
        """Return who runs commands."""
        return str(self._values.get("User") or "")

    @property
    def shell(self) -> tuple[str, ...]:
        """What runs commands that are no arrays."""
        return tuple(self._values["Shell"]) or _DEFAULT_SHELL

    @property
    def has_shell(self) -> bool:
        """Whether SHELL was used."""
        return bool(self._values["Shell"])

    def take_triggers(self) -> list[str]:
        """The ONBUILD instructions of the base, which are not passed on."""
        triggers: list[str] = self._values["OnBuild"]
        self._values["OnBuild"] = []
        return triggers

    def add_trigger(self, expression: str) -> None:
        """ONBUILD."""
        self._values["OnBuild"].append(expression)

    def set(self, key: str, value: object) -> None:
        """Replace a value; an empty one removes it."""
        self._values[key] = value

    def add_to(self, key: str, entries: Mapping[str, Any]) -> None:
        """Labels, ports and volumes."""
        self._values[key] |= entries

    def change_directory(self, path: str) -> str:
        """WORKDIR: an absolute path as it stands, a relative one below the directory so far."""
        path = path or self.directory or "/"
        if not path.startswith("/"):
            path = clean_path(posixpath.join("/", self.directory, path))
        self._values["WorkingDir"] = path
        return path

    def finish(self) -> dict[str, Any]:
        """The section, without what is empty."""
        values = self._values | {"Env": [f"{name}={value}" for name, value in self.environment.items()]}
        return {key: value for key, value in values.items() if value not in (None, "", [], {})}


def clean_path(path: str) -> str:
    """An absolute path without dots and double slashes."""
    return posixpath.normpath("/" + path.lstrip("/"))


def resolve_destination(directory: str, path: str) -> str:
    """Where COPY puts things: absolute, with a slash at its end if it must be a directory."""
    whole = clean_path(path if path.startswith("/") else posixpath.join("/", directory, path))
    is_directory = path.endswith("/") or path in ("", ".", "..") or path.endswith(("/.", "/.."))
    return whole.rstrip("/") + "/" if is_directory else whole
