# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe convert`: a recipe of one kind printed as the other."""

from __future__ import annotations

from kedge.recipe.convert.notes import ConvertedRecipe
from kedge.recipe.convert.to_dockerfile import convert_to_dockerfile
from kedge.recipe.steps import RecipePlace, refuse_recipe


def convert_recipe(text: str, name: str, kind: str) -> ConvertedRecipe:
    """Print the recipe as the kind that it is not; `kind` is what it is, definition or dockerfile."""
    if kind == "definition":
        return convert_to_dockerfile(text, name)
    raise refuse_recipe(RecipePlace(name, 1), "kedge prints definition files as Dockerfiles, not the other way round")
