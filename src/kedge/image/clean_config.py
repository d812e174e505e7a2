# SPDX-License-Identifier: BSD-3-Clause
"""What image configs hold, made safe and uniform: variables, labels and history lines that anybody may have written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kedge.base.patterns import late_pattern

_LONGEST_VALUE = 200  # characters of a fact
_LONGEST_LINE = 4000  # of a history line that is searched for variables
_MOST_LINES = 2000
_SETTING = late_pattern(r"(?<![A-Z0-9_])([A-Z][A-Z0-9_]*)=('[^']*'|\"[^\"]*\"|\S*)")
_ARGUMENTS = late_pattern(r"RUN \|\d+ ((?:[A-Za-z0-9_]+=\S* )+)")
_DECLARATION = late_pattern(r"(?:^|#\(nop\)\s+|^\s*)(?:ARG|ENV)\s+(.*)", re.DOTALL)
_SUFFIX = late_pattern(r"(?:-\d+)?(?:\+.*)?\Z")  # `+cuda12.2`; `-1`, as Debian numbers packages


def clean_text(text: object, longest: int = _LONGEST_VALUE) -> str:
    """A text of an image as people may be shown it: one line, no control characters, not endless."""
    if not isinstance(text, str):
        return ""
    if len(text) <= longest and text.isprintable():  # nearly all of them
        return " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: longest + 1])
    short = " ".join(shown.split())
    return short if len(text) <= longest else short[: longest - 1].rstrip() + "…"


def split_variables(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words by their names; the last of one name wins, as when a container starts."""
    pairs = (word.partition("=") for word in words if isinstance(word, str))
    return {name: value for name, equals, value in pairs if name and equals}


def list_commands(history: Iterable[object]) -> tuple[str, ...]:
    """The `created_by` lines of a config's history; what is no line is passed over."""
    lines = []
    for entry in history:
        line = entry.get("created_by") if isinstance(entry, Mapping) else entry
        lines.append(line if isinstance(line, str) else "")
        if len(lines) >= _MOST_LINES:
            break
    return tuple(lines)


def read_history_variables(lines: Iterable[str]) -> dict[str, str]:
    """Variables that builds were given (`ARG PYVER=3.12`, `RUN |1 PYVER=3.12 …`), which the config does not keep."""
    settings: dict[str, str] = {}
    for line in lines:
        text = line[:_LONGEST_LINE]
        given = _ARGUMENTS.search(text)
        declared = _DECLARATION.search(text)
        for part in (given[1] if given else "", declared[1] if declared else ""):
            settings.update((name, value.strip("'\"")) for name, value in _SETTING.findall(part))
    return settings


def strip_build(version: str) -> str:
    """`8.9.7.29` of `8.9.7.29+cuda12.2`, `2.21.5` of `2.21.5-1+cuda12.4`."""
    return _SUFFIX.sub("", version, count=1)


def shorten_command(line: str, longest: int = 100) -> str:
    """A history line as people read it: the instruction, without the shell around it."""
    text = clean_text(line, _LONGEST_LINE)
    text = text.removeprefix("/bin/sh -c #(nop)").removeprefix("/bin/sh -c").strip()
    text = re.sub(r"\ARUN \|\d+ (?:[A-Za-z0-9_]+=\S* )+", "RUN ", text)
    text = text.removeprefix("RUN /bin/sh -c").removesuffix("# buildkit").strip()
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
