# SPDX-License-Identifier: BSD-3-Clause
"""Reads a recipe of either kind: which one it is, its name says, or else its first line that is no comment."""

from __future__ import annotations

import re

from kedge.builds.step_values import BuildArguments, Recipe, RecipePlace, refuse_recipe

_DEFINITION_NAME = re.compile(r"(singularity|apptainer|definition)([._-].*)?|.*\.def", re.IGNORECASE)
_DOCKERFILE_NAME = re.compile(r"(dockerfile|containerfile)([._-].*)?|.*\.(dockerfile|containerfile)", re.IGNORECASE)
_DEFINITION_LINE = re.compile(r"%\w|(bootstrap|from|stage|mirrorurl|osversion|include)[ \t]*:", re.IGNORECASE)
_DOCKERFILE_LINE = re.compile(r"(from|arg)[ \t\\]", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#[ \t]*(syntax|escape|check)[ \t]*=", re.IGNORECASE)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BEGINNING = 8192


def read_recipe(data: bytes, name: str, arguments: BuildArguments | None = None, kind: str = "") -> Recipe:
    """Read a definition file or Dockerfile; `kind` (definition or dockerfile) is decided here where it is not given."""
    text = decode_recipe(data, name)
    if (kind or find_kind(text, name)) == "definition":  # late, both: one is needed
        from kedge.builds.definition.plan import make_recipe as make_definition_recipe

        return make_definition_recipe(text, name, arguments)
    from kedge.builds.dockerfile.plan import make_recipe as make_dockerfile_recipe

    return make_dockerfile_recipe(text, name, arguments)


def decode_recipe(data: bytes, name: str) -> str:
    """The text; a byte order mark goes, bytes that are no UTF-8 survive as they are."""
    if data.startswith(_UTF_16):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise _refuse_binary(name) from None
    if b"\0" in data[:_BEGINNING]:
        raise _refuse_binary(name)
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def find_kind(text: str, name: str) -> str:
    """`definition` or `dockerfile`."""
    base = name.rpartition("/")[2]
    by_name = [
        kind
        for kind, pattern in (("definition", _DEFINITION_NAME), ("dockerfile", _DOCKERFILE_NAME))
        if pattern.fullmatch(base)
    ]
    if len(by_name) == 1:
        return by_name[0]
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip()
        if _DIRECTIVE.match(content):
            return "dockerfile"
        if not content or content.startswith("#"):
            continue
        if _DEFINITION_LINE.match(content):
            return "definition"
        if _DOCKERFILE_LINE.match(content):
            return "dockerfile"
        raise _refuse_unknown(RecipePlace(name, number))
    raise _refuse_unknown(RecipePlace(name, 1))


def _refuse_unknown(place: RecipePlace) -> Exception:
    return refuse_recipe(
        place,
        "this is neither a definition file nor a Dockerfile",
        hint="a definition file begins with 'Bootstrap: ...', a Dockerfile with 'FROM ...'",
    )


def _refuse_binary(name: str) -> Exception:
    return refuse_recipe(
        RecipePlace(name, 1), "this is a binary file, not a recipe", hint="give a definition file or a Dockerfile"
    )
