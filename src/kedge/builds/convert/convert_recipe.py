# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe convert`: a recipe of one kind printed as the other."""

from __future__ import annotations

from kedge.builds.convert.notes import ConvertedRecipe
from kedge.builds.convert.to_definition import convert_to_definition
from kedge.builds.convert.to_dockerfile import convert_to_dockerfile


def convert_recipe(text: str, name: str, kind: str) -> ConvertedRecipe:
    """Print the recipe as the kind that it is not; `kind` is what it is, definition or dockerfile."""
    if kind == "definition":
        return convert_to_dockerfile(text, name)
    return convert_to_definition(text, name)
