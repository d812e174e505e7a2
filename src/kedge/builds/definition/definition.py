# SPDX-License-Identifier: BSD-3-Clause
"""One stage of a definition file as a value, and its JSON in the shape of Apptainer's `types.Definition`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kedge.base.nearest import find_near
from kedge.builds.go_strings import SPACES, cut_comment, lower, trim
from kedge.builds.step_values import RecipePlace, refuse_recipe

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


# Reads definition files by Apptainer's rules, which decide what a file in the wild means.
#
# The text is cut into stages at lines that begin with `Bootstrap:`, a stage into its header and sections at lines whose
# first word begins with `%`. A rule that surprises: blanks before the `%` of a section are refused, except in front of
# the very first one. What Apptainer takes and we refuse, and the other way round, is in docs/compatibility.md.

_STAGE = re.compile(r"^bootstrap:", re.MULTILINE | re.IGNORECASE)
# a template with what stands close to it, or a bare word, or one in quotes; a single quote never ends
_BLANK = r"\t\n\f\r "
_WORDS = re.compile(
    rf"""(?:[^{_BLANK}"']*\{{\{{[{_BLANK}]*[0-9A-Za-z_]+[{_BLANK}]*\}}+[^{_BLANK}{{}}"']*)+"""
    rf"""|[^{_BLANK}"']+|"[^"]*"|'[^']*"""
)


@dataclass(frozen=True, slots=True)
class _Section:
    """A stretch of a stage: its first line is the section's name, or it is the header."""

    text: str  # lines end with a newline, Windows line ends are gone
    line: int


@dataclass(slots=True)
class _OpenScript:
    """A section that may come again."""

    line: int
    arguments: str = ""
    bodies: list[str] = field(default_factory=list)

    def close(self) -> Script:
        return Script("".join(self.bodies), self.arguments, self.line)


@dataclass(slots=True)
class _OpenFiles:
    """The %files sections of one origin, which may come again."""

    line: int
    transfers: list[FileTransfer] = field(default_factory=list)


@dataclass(slots=True)
class _Parts:
    """What the sections of a stage add up to."""

    scripts: dict[str, _OpenScript] = field(default_factory=dict)
    custom: dict[str, _OpenScript] = field(default_factory=dict)
    files: dict[str, _OpenFiles] = field(default_factory=dict)  # by arguments
    app_order: dict[str, None] = field(default_factory=dict)
    unknown: list[tuple[str, int]] = field(default_factory=list)


def parse_stages(text: str, name: str) -> list[Definition]:
    """Parse all stages of a file; those with nothing in them, such as comments before the first one, are left out."""
    starts = [match.start() for match in _STAGE.finditer(text)]
    stages = []
    line = 1
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        if start < end:
            stage = parse_stage(text[start:end], name, line)
            line += text.count("\n", start, end)
            if not stage.is_empty:
                stages.append(stage)
    if not stages:
        raise refuse_recipe(
            RecipePlace(name, 1),
            "the definition file is empty",
            hint="begin it with 'Bootstrap: docker' and 'From: IMAGE'",
        )
    return stages


def parse_stage(text: str, name: str, line: int = 1) -> Definition:
    """Parse one stage; `line` is where it begins in the file."""
    header = Header()
    parts = _Parts()
    for index, section in enumerate(_cut_sections(text, line)):
        if index == 0:
            trimmed = trim(section.text)
            first = section.line + section.text[: section.text.find(trimmed)].count("\n") if trimmed else section.line
            section = _Section(trimmed, first)
            if not trimmed:
                continue
            if not trimmed.startswith("%"):
                header = read_header(trimmed, name, first)
                continue
        _add_section(section, name, parts)
    _refuse_unknown(parts.unknown, name)
    scripts = {key: script.close() for key, script in parts.scripts.items()}
    return Definition(
        name=name,
        raw=text,
        line=line,
        header=header.values,
        header_lines=header.lines,
        scripts=scripts,
        labels=read_labels(scripts["labels"].script) if "labels" in scripts else {},
        files=tuple(FilesSection(key, tuple(part.transfers), part.line) for key, part in parts.files.items()),
        custom={key: script.close() for key, script in parts.custom.items()},
        app_order=tuple(parts.app_order),
    )


def _cut_sections(text: str, first_line: int) -> Iterator[_Section]:
    """The header, if there is anything before the first section, and the sections."""
    pending: list[str] = []
    begun = first_line
    for number, line in enumerate(_split_lines(text), first_line):
        if line.lstrip(SPACES).startswith("%") and pending:
            yield _Section("".join(pending), begun)
            pending, begun = [], number
        pending.append(line + "\n")
    if pending:
        yield _Section("".join(pending), begun)


def _split_lines(text: str) -> Iterable[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return (line.removesuffix("\r") for line in lines)


def _add_section(section: _Section, name: str, parts: _Parts) -> None:
    title, newline, body = section.text.partition("\n")
    place = RecipePlace(name, section.line, title.find("%") + 1)
    if not newline:
        raise refuse_recipe(place, f"section {title} is empty", hint="add lines below it, or remove it")
    words = title.lstrip("%").split(" ", 1)
    key = lower(words[0])
    if key == "files":
        opened = parts.files.setdefault(words[1] if len(words) == 2 else "", _OpenFiles(section.line))
        opened.transfers += _read_transfers(body, place)
        return
    known = parts.scripts
    if key in APP_SECTIONS:
        key = _add_app(title, place, parts.app_order)
        known = parts.custom
        words = words[:1]
    if key.partition(" ")[0] not in (*SECTIONS, *APP_SECTIONS):
        parts.unknown.append((title, section.line))
        return
    script = known.setdefault(key, _OpenScript(section.line))
    script.bodies.append(body)
    if len(words) == 2:
        script.arguments = words[1]


def _add_app(title: str, place: RecipePlace, order: dict[str, None]) -> str:
    """The key of an app's section, `apprun NAME`; its name is remembered in the order of the file."""
    words = title.lstrip("%").split(" ", 2)
    if len(words) < 2:
        raise refuse_recipe(
            place, f"section {title} has no app name", hint=f"write '{title} NAME', with the name of the app"
        )
    order[words[1]] = None
    return " ".join(words[:2])


def _read_transfers(body: str, place: RecipePlace) -> Iterator[FileTransfer]:
    """The lines of a %files section whose name stands at `place`."""
    for line, raw in enumerate(body.split("\n"), place.line + 1):
        content = trim(raw)
        if content and not content.startswith("#"):
            yield _read_transfer(content, RecipePlace(place.file, line))


def _read_transfer(content: str, place: RecipePlace) -> FileTransfer:
    words = [trim(word).strip('"') for word in _WORDS.findall(content)]
    if not words:
        raise refuse_recipe(
            place, f"'{content}' contains no file name", hint='write: SOURCE [DESTINATION], or "NAME WITH BLANKS"'
        )
    return FileTransfer(words[0], words[1] if len(words) > 1 else "", place.line)


def read_labels(text: str) -> dict[str, str]:
    """`NAME VALUE` lines: %labels, and what %post appends to $APPTAINER_LABELS."""
    labels = {}
    for raw in trim(text).split("\n"):
        content = trim(raw)
        if content and not content.startswith("#"):
            key, _, value = content.partition(" ")
            labels[trim(key)] = trim(value)
    return labels


def _refuse_unknown(unknown: list[tuple[str, int]], name: str) -> None:
    """The error for the first section that Apptainer does not know."""
    if not unknown:
        return
    title, line = unknown[0]
    bare = title.strip(SPACES + "%")
    word = bare.split()[0].lower() if bare.split() else ""
    place = RecipePlace(name, line, title.find("%") + 1)
    if word in SECTIONS or word in APP_SECTIONS:
        better = " ".join([f"%{word}", *bare.split()[1:]])
        raise refuse_recipe(
            place,
            f"section '{title}' is not written as Apptainer requires",
            hint=f"start the line with it, in lower case and with single spaces: {better}",
        )
    close = find_near(word, (*SECTIONS, *APP_SECTIONS))
    hint = f"did you mean %{close}?" if close else "a script line must not start with %: put another character first"
    raise refuse_recipe(place, f"unknown section '{title}'", hint=hint)


# The header of a stage: `Key: value` lines, comments, and values that go on behind a backslash.

_HEADER_KEYS = {
    "bootstrap": "Bootstrap",
    "from": "From",
    "includecmd": "IncludeCmd",
    "mirrorurl": "MirrorURL",
    "updateurl": "UpdateURL",
    "osversion": "OSVersion",
    "include": "Include",
    "library": "Library",
    "registry": "Registry",
    "namespace": "Namespace",
    "stage": "Stage",
    "product": "Product",
    "user": "User",
    "regcode": "RegCode",
    "productpgp": "ProductPGP",
    "registerurl": "RegisterURL",
    "modules": "Modules",
    "otherurl&n": "OtherURL1",
    "fingerprints": "Fingerprints",
    "confurl": "ConfURL",
    "setopt": "SetOpt",
    "target": "Target",
    "frontend": "Frontend",
    "filename": "Filename",
    "buildargs": "BuildArgs",
}
_NUMBER = re.compile(r"[0-9]+$")


@dataclass(slots=True)
class Header:
    """Values and their lines, by keys in lower case."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_header(text: str, name: str, first_line: int) -> Header:
    """Read the lines before the first section."""
    header = Header()
    for line, key, value, column in _join_lines(text, name, first_line):
        if key not in _HEADER_KEYS and _NUMBER.sub("&n", key) not in _HEADER_KEYS:
            raise _refuse_key(RecipePlace(name, line, column), key)
        header.values[key] = value
        header.lines[key] = line
    return header


def _join_lines(text: str, name: str, first_line: int) -> Iterator[tuple[int, str, str, int]]:
    """Line, key, value and column of every entry. A value with nothing behind its backslash is lost."""
    key = begun = ""
    begun_line = first_line
    for line, raw in enumerate(text.split("\n"), first_line):
        content = trim(raw)
        column = len(raw) - len(raw.lstrip(SPACES)) + 1
        if not content or content.startswith("#"):
            if key:
                raise refuse_recipe(
                    RecipePlace(name, line),
                    f"the backslash in line {begun_line} continues '{key}', but this line is empty or a comment",
                    hint=f"remove the backslash in line {begun_line}, or this line",
                )
            continue
        content = cut_comment(content)
        if begun:
            value = begun + trim(content)
        else:
            before, colon, behind = content.partition(":")
            if not colon:
                raise _refuse_line(RecipePlace(name, line, column), content)
            key, value, begun_line = lower(trim(before)), trim(behind), line
        if value.endswith("\\"):
            begun = value.removesuffix("\\")
            if begun.endswith("\\n"):
                begun = begun.removesuffix("\\n") + "\n"
            continue
        yield begun_line, key, value, column
        key = begun = ""


def _refuse_line(place: RecipePlace, content: str) -> Exception:
    word = content.partition(" ")[0]
    return refuse_recipe(
        place,
        f"header line '{trim(content)}' has no colon",
        hint=f"write '{word}: VALUE', or move the line into a section such as %post",
    )


def _refuse_key(place: RecipePlace, key: str) -> Exception:
    names = [known for known in _HEADER_KEYS if known != "otherurl&n"]
    close = find_near(key, names)
    hint = f"did you mean {_HEADER_KEYS[close]}?" if close else "known keys: " + ", ".join(_HEADER_KEYS.values())
    return refuse_recipe(place, f"unknown header key '{key}'", hint=hint)
