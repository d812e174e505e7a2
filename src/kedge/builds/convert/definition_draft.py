# SPDX-License-Identifier: BSD-3-Clause
"""A stage of a definition file in the making: what its sections will have, and how they are printed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

_INDENT = "    "


@dataclass(slots=True)
class Command:
    """ENTRYPOINT or CMD."""

    words: tuple[str, ...] = ()
    is_shell: bool = False


@dataclass(slots=True)
class DefinitionDraft:
    """All that a stage collects; a stage that is based on another one begins with a copy of its draft."""

    header: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)  # above the header
    arguments: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)  # by origin: empty, or the name of a stage
    post: list[str] = field(default_factory=list)
    post_arguments: str = ""
    environment: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # comments about what has no equal
    entrypoint: Command = field(default_factory=Command)
    command: Command = field(default_factory=Command)

    def print(self, *, is_last: bool) -> str:
        """The text; of stages that others copy from, only what is needed to make their files."""
        sections = [[*self.comments, *self.header, *self.remarks]]
        if self.arguments:
            sections.append(["%arguments", *(f"{_INDENT}{key}={value}" for key, value in self.arguments.items())])
        for origin, lines in self.files.items():
            sections.append([f"%files from {origin}" if origin else "%files", *(_INDENT + line for line in lines)])
        if self.post:
            title = f"%post {self.post_arguments}".rstrip()
            sections.append([title, *(_indent(lines) for lines in self.post)])
        if is_last:
            sections += self._describe()
        return "\n\n".join("\n".join(lines) for lines in sections) + "\n"

    def _describe(self) -> list[list[str]]:
        sections = []
        if self.environment:
            sections.append(["%environment", *(_INDENT + line for line in self.environment)])
        if self.labels:
            sections.append(["%labels", *(f"{_INDENT}{key} {value}".rstrip() for key, value in self.labels.items())])
        run = _write_runscript(self.entrypoint, self.command)
        if run:
            sections.append(["%runscript", *(_INDENT + line for line in run)])
        return sections


def _indent(text: str) -> str:
    """Lines as they stand in %post; a heredoc stays as it is, because its end must be at the beginning of a line."""
    if "<<" in text:
        return text
    return "\n".join(_INDENT + line if line.strip() else "" for line in text.split("\n"))


def _write_runscript(entrypoint: Command, command: Command) -> list[str]:
    """ENTRYPOINT and CMD as Docker puts them together."""
    if entrypoint.is_shell and entrypoint.words:
        return [f"exec {shlex.join(entrypoint.words)}"]
    fixed = shlex.join(entrypoint.words)
    if not fixed and not command.words:
        return []
    start = f'exec {fixed} "$@"' if fixed else 'exec "$@"'
    if not command.words:
        return [start]
    return [f'[ "$#" -gt 0 ] || set -- {shlex.join(command.words)}', start]
