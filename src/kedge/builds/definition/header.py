# SPDX-License-Identifier: BSD-3-Clause
"""The header of a stage: `Key: value` lines, comments, and values that go on behind a backslash."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kedge.base.nearest import find_near
from kedge.builds.go_strings import SPACES, cut_comment, lower, trim
from kedge.builds.step_values import RecipePlace, refuse_recipe

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
