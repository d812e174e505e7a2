# SPDX-License-Identifier: BSD-3-Clause
"""Reads the recipe of a build, with the arguments it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.base.platform import Platform
from kedge.base.secret_text import mask_value
from kedge.builds.dockerfile.scope import PROXY_NAMES
from kedge.builds.read_recipe import read_recipe
from kedge.builds.request import BuildRequest
from kedge.builds.step_values import BuildArguments, Recipe
from kedge.errors import FileProblem, InvalidRecipe, UsageError
from kedge.image.workplace import Workplace
from kedge.system.files import explained

_MAXIMUM_RECIPE = 64 << 20  # bytes
STANDARD_INPUT = "-"
# what --section takes; `apps` goes with `post`, too
_SECTIONS = (
    *("all", "none", "pre", "setup", "files", "post", "apps", "environment", "runscript", "startscript"),
    *("labels", "help", "test"),
)


@frozen
class RecipeInput:
    """A recipe that was read, where it stands, and where its files come from."""

    recipe: Recipe
    path: Path | None
    context: Path
    warnings: tuple[str, ...] = ()


def load_recipe(request: BuildRequest, workplace: Workplace, environ: Mapping[str, str]) -> RecipeInput:
    """Read the recipe that the request names."""
    path = None if request.spec == STANDARD_INPUT else Path(request.spec)
    data = _read_file(path) if path is not None else request.text
    if data is None:
        raise UsageError("there is no recipe on standard input")
    name = str(path) if path is not None else "standard input"
    recipe = read_recipe(data, name, make_arguments(request, workplace, environ))
    _check_sections(recipe, request)
    unused = _judge_unused(recipe, request)
    warnings = (*recipe.warnings, *unused, *_judge_secrets(recipe, request))
    return RecipeInput(recipe, path, _choose_context(request, recipe, path), warnings)


def _check_sections(recipe: Recipe, request: BuildRequest) -> None:
    """Refuse --section and --update where they mean nothing."""
    given = "--update" if request.updates else "--section"
    if recipe.kind != "definition" and (request.updates or request.sections != ("all",)):
        hint = "leave it out; to end earlier: --target STAGE"
        raise UsageError(f"{given} works with definition files, and {recipe.name} is a Dockerfile", hint=hint)
    for name in request.sections:
        if name not in _SECTIONS:
            hint = propose(name, list(_SECTIONS)) or f"use some of: {', '.join(_SECTIONS)}"
            raise UsageError(f"--section: a definition file has no section '{name}'", hint=hint)


def _judge_unused(recipe: Recipe, request: BuildRequest) -> list[str]:
    """Warnings about arguments that nothing asks for; Apptainer refuses them in definition files."""
    if not recipe.unused_arguments:
        return []
    message = f"the recipe does not use the build arguments {', '.join(sorted(recipe.unused_arguments))}"
    if recipe.kind == "definition" and not request.warns_unused:
        raise UsageError(message, hint="remove them, or build with --warn-unused-build-args")
    return [message]


def _judge_secrets(recipe: Recipe, request: BuildRequest) -> Iterator[str]:
    """Warnings about arguments that seem to be secrets; what a Dockerfile names itself is warned of there."""
    remedy = (
        "bind a file instead: --bind FILE:/run/FILE"
        if recipe.kind == "definition"
        else "use --secret and RUN --mount=type=secret instead"
    )
    for name, value in request.arguments.items():
        is_known = any(f"'{name}'" in warning for warning in recipe.warnings)
        if not is_known and mask_value(name, value) != value:
            yield f"the build argument {name} looks like a secret, and the image may show it; {remedy}"


def _read_file(path: Path) -> bytes:
    with explained(path), path.open("rb") as file:
        data = file.read(_MAXIMUM_RECIPE + 1)
    if len(data) > _MAXIMUM_RECIPE:
        raise InvalidRecipe(f"{path} is larger than 64 MiB, and so no recipe")
    return data


def make_arguments(request: BuildRequest, workplace: Workplace, environ: Mapping[str, str]) -> BuildArguments:
    """What the user gives to the recipe."""
    proxies = {name: value for name, value in environ.items() if name.upper() in PROXY_NAMES}
    target = request.platform or str(workplace.platform)
    return BuildArguments(
        request.arguments,
        build_platform=str(Platform.host()),
        target_platform=str(Platform.parse(target)),
        environment=proxies,
        target=request.target,
        sections=request.sections,
        contexts=tuple(request.contexts),
        epoch=request.epoch,
        updated=str(request.output.path) if request.updates else "",
    )


def _choose_context(request: BuildRequest, recipe: Recipe, path: Path | None) -> Path:
    """Where COPY and %files begin: as Apptainer and docker have it, the current directory unless one is named."""
    del recipe, path
    try:
        context = request.context or Path(os.getcwd())  # noqa: PTH109 - as the shell says it
    except FileNotFoundError:
        hint = "change to a directory that exists, or name the build context"
        raise FileProblem(
            "the current directory, which is the build context, does not exist any more", hint=hint
        ) from None
    if not context.is_dir():
        raise FileProblem(f"the build context {context} is not a directory", context={"path": str(context)})
    return context
