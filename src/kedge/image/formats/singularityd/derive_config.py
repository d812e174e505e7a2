# SPDX-License-Identifier: BSD-3-Clause
"""The way back: from what `/.singularity.d` says about an image to the `config` section of an OCI image.

Scripts that were made from an OCI config are read back exactly. Of hand-written ones, plain `export NAME=VALUE` lines
become variables and the runscript becomes the entrypoint, as the argument of its shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from kedge.image.formats.singularityd import fixed_files
from kedge.image.formats.singularityd.inspect_report import InspectReport

_PREFIX = "/.singularity.d/env/"
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_OCI_EXPORT = re.compile(rf'^export ([A-Za-z_]\w*)=(?:"\$\{{\1:-{_QUOTED}\}}"|{_QUOTED})$', re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_]\w*)=", re.MULTILINE)
# a word that a shell replaces nothing in: '…', "…" and bare characters, of which a tilde in front is a home
_PIECES = re.compile(r"""'([^']*)'|"((?:[^"\\$`]|\\.)*)"|([^\s'"\\$`;&|<>()#]|\\.|(?<=\S)#)""", re.DOTALL)
_CONSTANT = re.compile(rf"(?!~)(?:{_PIECES.pattern})*", re.DOTALL)
_REST = re.compile(r"[ \t]*;?(?:[ \t]+#.*)?[ \t]*$", re.MULTILINE)
_OCI_WORDS = r"^{}=((?:'[^']*'|\"[^\"]*\")*)$"
_ESCAPED = re.compile(r"\\(?:([\\\"`$])|\n)")
_ESCAPED_BARE = re.compile(r"\\(?:([^\n])|\n)")
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_LONGEST_SCRIPT = 100_000  # the kernel takes 128 KiB per argument
# labels that every conversion writes anew
_OWN_LABELS = (
    "org.label-schema.usage",
    "org.label-schema.build-",
    "org.label-schema.schema-version",
    "org.opencontainers.image.base.",
)


def derive_section(report: InspectReport, known: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    """The config section, and what could not be carried over; `known` is the one the image was made from."""
    section = dict(known or {})
    warnings: list[str] = []
    environment = {**dict(_read_known(section, report)), **dict(_read_exports(report, warnings))}
    if environment:
        section["Env"] = [name if value is None else f"{name}={value}" for name, value in environment.items()]
    _put_command(section, report.runscript, warnings)
    labels = dict(section.get("Labels") or {})
    labels |= {name: text for name, text in report.labels.items() if not name.startswith(_OWN_LABELS)}
    if labels:
        section["Labels"] = labels
    return section, warnings


def read_oci_words(runscript: str) -> tuple[list[str], list[str]] | None:
    """Entrypoint and command of a runscript that was made from an OCI config; None for any other script."""
    commands = []
    for name in ("OCI_ENTRYPOINT", "OCI_CMD"):
        match = re.search(_OCI_WORDS.format(name), runscript, re.MULTILINE)
        if match is None:
            return None
        text = "".join(shlex.split(match[1]))
        commands.append([_unescape(word) for word in re.findall(_QUOTED, text, re.DOTALL)])
    return commands[0], commands[1]


def _read_known(section: dict[str, Any], report: InspectReport) -> Iterator[tuple[str, str | None]]:
    if "Env" in section:
        for entry in section["Env"] or ():
            name, equals, value = entry.partition("=")
            yield name, value if equals else None
        return
    for match in _OCI_EXPORT.finditer(report.environment.get(_PREFIX + fixed_files.OCI_ENVIRONMENT, "") + "\n"):
        text = match[2] if match[2] is not None else match[3]
        if not re.search(r"[$`]", _ESCAPED.sub("", text)):
            yield match[1], _unescape(text)


def _read_exports(report: InspectReport, warnings: list[str]) -> Iterator[tuple[str, str]]:
    text = report.environment.get(_PREFIX + fixed_files.CUSTOM_ENVIRONMENT, "")
    position = 0
    while export := _EXPORT.search(text, position):
        word = _CONSTANT.match(text, export.end())
        position = (word or export).end()
        if word is not None and _REST.match(text, position):
            yield export[1], _read_constant(word[0])
        else:
            warnings.append(
                f"the environment variable {export[1]} is computed by a script, which an OCI config cannot hold"
            )


def _read_constant(word: str) -> str:
    """What a shell makes of a word in which it replaces nothing but quotes and backslashes."""
    pieces = _PIECES.findall(word)
    return "".join(single or _unescape(double) or _ESCAPED_BARE.sub(r"\1", bare) for single, double, bare in pieces)


def _put_command(section: dict[str, Any], runscript: str, warnings: list[str]) -> None:
    words = read_oci_words(runscript)
    if words is not None:
        if "Entrypoint" not in section and "Cmd" not in section:
            section |= {key: value for key, value in zip(("Entrypoint", "Cmd"), words, strict=True) if value}
        return
    if not runscript.strip():
        return
    shell = runscript.partition("\n")[0].removeprefix("#!").strip() if runscript.startswith("#!") else "/bin/sh"
    if shell.rpartition("/")[2] not in _SHELLS or len(runscript.encode()) > _LONGEST_SCRIPT:
        warnings.append(
            "the runscript is no shell script of usual length; the image starts with its entrypoint, if any"
        )
        return
    section["Entrypoint"] = [shell, "-c", runscript.rstrip("\n"), "runscript"]
    section.pop("Cmd", None)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
