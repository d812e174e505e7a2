# SPDX-License-Identifier: BSD-3-Clause
"""Which files `--from` and FROM may name: the one place that decides it.

A recipe, and more so an image with ONBUILD, is written by others. They name stages and images of registries. Files of
this host, in whatever form, are named on the command line: `--build-context NAME=VALUE` is an image, or a directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.base.frozen import replace
from kedge.builds.bases.base_references import name_reference
from kedge.builds.step_values import Base, CopyOrigin, RecipePlace, refuse_recipe
from kedge.errors import InvalidReference

_IMAGES = ("docker-image://", "docker://", "oci:", "oci-archive:", "docker-archive:")


def _find_image(value: str) -> str:
    """The reference of the image that a context is; empty if it is a directory."""
    if value.startswith("oci-layout://"):
        return "oci:" + value.removeprefix("oci-layout://")
    return value.removeprefix("docker-image://") if value.startswith(_IMAGES) else ""


def settle_context(base: Base, contexts: Mapping[str, str]) -> Base:
    """A base that is a context, as the image or directory it stands for; any other as it is."""
    if base.agent != "context":
        return base
    value = contexts.get(base.reference, "")
    image = _find_image(value)
    return replace(base, agent="docker" if image else "localimage", reference=image or value.removeprefix("local:"))


def settle_origin(origin: CopyOrigin, contexts: Mapping[str, str], place: RecipePlace) -> Base | Path | None:
    """What `--from` means, where that is no stage: an image, a directory of this host; None for the build context.

    Raises InvalidRecipe for files of this host that the command line does not name.
    """
    if origin.image:
        return _settle_image(origin, place)
    if not origin.name:
        return None
    value = contexts.get(origin.name)
    if value is None:
        raise refuse_recipe(
            place,
            f"there is no stage and no context '{origin.name}'",
            f"name an earlier stage, an image, or give the context: --build-context {origin.name}=DIRECTORY",
        )
    image = _find_image(value)
    found = Base(place, "docker", image) if image else Path(value.removeprefix("local:"))
    if origin.is_trigger and (isinstance(found, Path) or name_reference(found).is_local):
        raise refuse_recipe(
            place,
            f"ONBUILD of the base image copies from the context '{origin.name}', which lies on this host",
            f"copy from it in your own recipe: COPY --from={origin.name} SOURCE DESTINATION",
        )
    return found


def _settle_image(origin: CopyOrigin, place: RecipePlace) -> Base:
    base = Base(place, "docker", origin.image)
    try:
        is_local = name_reference(base).is_local
    except InvalidReference as problem:
        raise refuse_recipe(place, problem.message, problem.hint) from problem
    if is_local:
        who, hint = "ONBUILD of the base image", "use another base image, or write the steps of this one yourself"
        if not origin.is_trigger:
            who, hint = (
                "--from",
                f"give it a name on the command line: --build-context NAME={origin.image}; --from=NAME",
            )
        raise refuse_recipe(place, f"{who} names '{origin.image}', which lies on this host", hint)
    return base
