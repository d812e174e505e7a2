# SPDX-License-Identifier: BSD-3-Clause
"""`{{ name }}` in definition files: replaced by Apptainer's rules before the file is read for good.

A value comes from --build-arg, else from the stage's %arguments. Values may name others, one level deep. What stands
behind a `#` on its line stays as it is, even in a quoted word; only `#!` and a `#` right before the braces do not
count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kedge.builds.definition.definition import Definition
from kedge.builds.go_strings import trim
from kedge.builds.step_values import RecipePlace, ValuesTooLong, refuse_recipe
from kedge.errors import InvalidRecipe

_TEMPLATE = re.compile(r"\{\{[\t\n\f\r ]*([0-9A-Za-z_]+)[\t\n\f\r ]*\}\}")
_COMMENT = re.compile(r"#[^!]")
_LARGEST_VALUE = 1 << 20  # characters, with the names in it replaced; values may be whole scripts
_LARGEST_SUM = 64 << 20  # that all values of a stage put in, which is what a recipe may have


@dataclass(frozen=True, slots=True)
class ExpandedText:
    """A stage with its values put in."""

    text: str
    used: frozenset[str]  # names that were replaced
    warnings: tuple[str, ...] = ()


def read_defaults(stage: Definition) -> tuple[dict[str, str], tuple[str, ...]]:
    """The values of %arguments, and a warning for every line that has none."""
    script = stage.script("arguments")
    values: dict[str, str] = {}
    warnings = []
    for number, raw in enumerate(script.script.split("\n"), script.line + 1):
        content = trim(raw)
        if not content or content.startswith("#"):
            continue
        key, equals, value = content.partition("=")
        if equals and trim(key):
            values[trim(key)] = trim(value)
        else:
            warnings.append(f"{RecipePlace(stage.name, number)}: skipped '{content}': %arguments has lines NAME=VALUE")
    return values, tuple(warnings)


def expand_arguments(stage: Definition, given: Mapping[str, str], *, keeps_undefined: bool = False) -> ExpandedText:
    """Put in the values; a name without one is refused, or stays with a warning."""
    defaults, warnings = read_defaults(stage)
    values = {**defaults, **given}
    used = set()
    undefined: dict[str, str] = {}
    total = 0

    def find_value(match: re.Match[str]) -> str:
        nonlocal total
        if match[1] not in values:
            problem = _refuse_undefined(stage, match)
            if not keeps_undefined:
                raise problem
            undefined.setdefault(match[1], problem.message)
            return match[0]
        used.add(match[1])
        value = _expand_nested(values[match[1]], values)
        total += 0 if value is None else len(value)
        if value is None or total > _LARGEST_SUM:
            raise _refuse_length(stage, match)
        return value

    text = _replace(stage.raw, find_value)
    return ExpandedText(text, frozenset(used), (*warnings, *undefined.values()))


def list_arguments(text: str) -> list[str]:
    """The names that would be replaced, each once."""
    names: dict[str, None] = {}

    def note(match: re.Match[str]) -> str:
        names[match[1]] = None
        return match[0]

    _replace(text, note)
    return list(names)


def mark_arguments(text: str, begin: str, end: str) -> str:
    """The text with other signs around the names, wherever they would be replaced."""
    return _replace(text, lambda match: f"{begin}{match[1]}{end}")


def _replace(text: str, find_value: Callable[[re.Match[str]], str]) -> str:
    """The text with every template replaced that is not in a comment."""
    pieces: list[str] = []
    position = line_start = searched = 0
    skipped_line = -1
    for match in _TEMPLATE.finditer(text):
        newline = text.rfind("\n", searched, match.start() + 1)
        searched = match.start()
        line_start = max(newline, line_start)
        start = max(line_start, position)
        if start == skipped_line or _COMMENT.search(text, start, match.start()):
            skipped_line = start
            continue
        pieces += [text[position : match.start()], find_value(match)]
        position = match.end()
    return "".join(pieces) + text[position:]


def _expand_nested(value: str, values: Mapping[str, str]) -> str | None:
    """Names inside of a value, one after the other; unknown ones stay. None where that is too long."""
    result = value
    for text, name in dict.fromkeys((match[0], match[1]) for match in _TEMPLATE.finditer(value)):
        if name in values:
            if len(result) + result.count(text) * len(values[name]) > _LARGEST_VALUE:
                return None
            result = result.replace(text, values[name])
    return result


def _refuse_length(stage: Definition, match: re.Match[str]) -> InvalidRecipe:
    return ValuesTooLong(_find_place(stage, match), f"the value of '{match[1]}' is too long with all that it names")


def _find_place(stage: Definition, match: re.Match[str]) -> RecipePlace:
    line = stage.line + stage.raw.count("\n", 0, match.start())
    return RecipePlace(stage.name, line, match.start() - stage.raw.rfind("\n", 0, match.start()))


def _refuse_undefined(stage: Definition, match: re.Match[str]) -> InvalidRecipe:
    return refuse_recipe(
        _find_place(stage, match),
        f"the build argument '{match[1]}' has no value",
        hint=f"give it with --build-arg {match[1]}=VALUE, or a default below %arguments: {match[1]}=VALUE",
    )
