# SPDX-License-Identifier: BSD-3-Clause
"""One stage of a definition file as a value, and its JSON in the shape of Apptainer's `types.Definition`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

APP_SECTIONS = ("appinstall", "applabels", "appfiles", "appenv", "apptest", "apphelp", "apprun", "appstart")
SECTIONS = (
    "help",
    "setup",
    "files",
    "labels",
    "environment",
    "pre",
    "post",
    "runscript",
    "test",
    "startscript",
    "arguments",
)


@dataclass(frozen=True, slots=True)
class Script:
    """The text of a section, and what stands behind its name. Sections of one name are put together."""

    script: str = ""
    arguments: str = ""
    line: int = 0  # of the section's name, the first one; 0 where there is no such section

    def as_dict(self) -> dict[str, str]:
        """Apptainer's field names."""
        return {"args": replace_bytes(self.arguments), "script": replace_bytes(self.script)}


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """A line of %files; no destination means the same path."""

    source: str
    destination: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class FilesSection:
    """The %files sections with the same words behind the name."""

    arguments: str
    transfers: tuple[FileTransfer, ...] = ()
    line: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Apptainer's field names; no line at all is null there."""
        lines = [
            {"source": replace_bytes(transfer.source), "destination": replace_bytes(transfer.destination)}
            for transfer in self.transfers
        ]
        return {"args": replace_bytes(self.arguments), "files": lines or None}


@dataclass(frozen=True, slots=True)
class Definition:
    """One stage: the header, the sections, and the text they were read from."""

    name: str  # of the file
    raw: str
    line: int = 1  # where `raw` begins in the file
    header: Mapping[str, str] = field(default_factory=dict)  # keys in lower case
    header_lines: Mapping[str, int] = field(default_factory=dict)
    scripts: Mapping[str, Script] = field(default_factory=dict)  # help, post and so on; those that are there
    labels: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FilesSection, ...] = ()
    custom: Mapping[str, Script] = field(default_factory=dict)  # of apps: `apprun NAME`
    app_order: tuple[str, ...] = ()

    def script(self, section: str) -> Script:
        """The section; an empty one where the stage has none."""
        return self.scripts.get(section) or Script()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read: Apptainer passes over such a stage."""
        has_script = any(item.script or item.arguments for name, item in self.scripts.items() if name != "labels")
        return not (self.header or has_script or self.labels or self.files or self.custom)

    def as_dict(self, full_raw: str | None = None) -> dict[str, Any]:
        """The stage as Apptainer's encoder writes it; `full_raw` is the text of the whole file."""
        shown = {name: self.script(name).as_dict() for name in SECTIONS}
        images = {"help": "help", "environment": "environment", "runScript": "runscript", "test": "test"}
        return {
            "header": {key: replace_bytes(value) for key, value in self.header.items()} or None,
            "imageData": {
                "metadata": None,
                "labels": {replace_bytes(key): replace_bytes(value) for key, value in sorted(self.labels.items())},
                "imageScripts": {key: shown[name] for key, name in images.items()}
                | {"startScript": shown["startscript"]},
            },
            "buildData": {
                "files": [section.as_dict() for section in self.files],
                "buildScripts": {name: shown[name] for name in ("pre", "setup", "post", "test", "arguments")},
            },
            "customData": {replace_bytes(key): replace_bytes(item.script) for key, item in self.custom.items()} or None,
            "raw": _encode(self.raw),
            "fullraw": _encode(self.raw if full_raw is None else full_raw),
            "appOrder": [replace_bytes(name) for name in self.app_order],
        }


def replace_bytes(text: str) -> str:
    """The text with bytes that are no UTF-8 replaced, one sign each: JSON holds text only."""
    if text.isascii():
        return text
    return "".join("\ufffd" if "\udc80" <= character <= "\udcff" else character for character in text)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
