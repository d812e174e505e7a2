# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what a recipe begins with: names that change, images that are gone, compilers in the result."""

from __future__ import annotations

from collections.abc import Iterator

from kedge.builds.lint.recipe_view import NOTE, WARNING, LintFinding, LintRecipe, LintStage, is_unpinned, name_runtime

_REGISTRIES = ("docker", "library", "oras")


def check_bases(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about bases."""
    names: set[str] = set()
    for stage in recipe.stages:
        is_image = stage.image.lower() not in names and stage.image.lower() != "scratch"
        if is_image and stage.agent in _REGISTRIES and is_unpinned(stage.image):
            yield _name_unpinned(stage, recipe.kind)
        if stage.agent == "shub":
            yield LintFinding(
                stage.place,
                "singularity-hub",
                WARNING,
                "Singularity Hub is closed: the base cannot be fetched",
                reason="shub.to stopped serving images in 2021",
                better="Bootstrap: docker\nFrom: IMAGE:TAG",
            )
        names.add(stage.name.lower())
    yield from _check_compilers(recipe)


def _name_unpinned(stage: LintStage, kind: str) -> LintFinding:
    bare = stage.image.removesuffix(":latest")
    word = "FROM" if kind == "dockerfile" else "From:"
    return LintFinding(
        stage.place,
        "unpinned-base",
        WARNING,
        f"{stage.image} may be another image tomorrow",
        reason="without a tag, or with 'latest', each build takes whatever is newest",
        better=f"{word} {bare}:TAG, or {bare}@sha256:DIGEST; 'kedge build --lock' writes the digests for you",
    )


def _check_compilers(recipe: LintRecipe) -> Iterator[LintFinding]:
    result = recipe.result
    runtime = name_runtime(result.image)
    if runtime:
        yield LintFinding(
            result.place,
            "compilers-in-result",
            NOTE,
            f"the result has all compilers and headers of {result.image}",
            reason="a devel image is some gigabytes larger than its runtime image, which is enough to run programs",
            better=f"compile in a first stage, and copy the result into {runtime}",
        )
