# SPDX-License-Identifier: BSD-3-Clause
"""Recipes in files, to look at and not to build: their stages and steps, and the syntax as other parsers print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, replace
from kedge.base.platform import Platform
from kedge.builds.convert.notes import ConvertedRecipe
from kedge.builds.convert.to_definition import convert_to_definition
from kedge.builds.convert.to_dockerfile import convert_to_dockerfile
from kedge.builds.definition.definition import parse_stages
from kedge.builds.dockerfile.syntax import dump_syntax, read_syntax
from kedge.builds.lint.lint_recipe import lint_recipe
from kedge.builds.lint.recipe_view import LintFinding
from kedge.builds.read_recipe import decode_recipe, find_kind, read_recipe
from kedge.builds.step_values import BuildArguments, Recipe, Stage, name_stage
from kedge.errors import InvalidRecipe, UsageError
from kedge.system.files import atomic_output, explained, refuse_existing_text

LARGEST_RECIPE = 64 << 20  # bytes
_STANDARD_INPUT = "-"
_KINDS = {"RunStep": "run", "CopyStep": "copy", "ConfigStep": "config", "DirectoryStep": "directory"}
_KINDS |= {"HostScriptStep": "host script", "WriteFilesStep": "files"}


@dataclass(frozen=True, slots=True)
class RecipeFile:
    """The text of a recipe, where it comes from, and which kind it is."""

    name: str
    data: bytes
    kind: str  # dockerfile or definition

    @property
    def text(self) -> str:
        """Decoded."""
        return decode_recipe(self.data, self.name)


@dataclass(frozen=True, slots=True)
class ListedStep(JsonValue):
    """One step of a stage."""

    line: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ListedStage(JsonValue):
    """One stage, its base and what it needs."""

    number: int
    name: str  # `stage-NUMBER` where the recipe gives it none
    agent: str
    base: str
    platform: str
    needs: tuple[int, ...]
    is_used: bool
    steps: tuple[ListedStep, ...]


@dataclass(frozen=True, slots=True)
class RecipeGraph(JsonValue):
    """What a recipe does."""

    name: str
    kind: str
    stages: tuple[ListedStage, ...]
    warnings: tuple[str, ...]
    unused_arguments: tuple[str, ...]


def open_recipe(name: str, kind: str = "") -> RecipeFile:
    """Read a recipe; `-` is standard input. Its kind is found out where `kind` does not say it."""
    data = read_input() if name == _STANDARD_INPUT else _read_file(Path(name))
    shown = "standard input" if name == _STANDARD_INPUT else name
    return RecipeFile(shown, data, kind or find_kind(decode_recipe(data, shown), shown))


def read_input() -> bytes:
    """The recipe on standard input."""
    data = sys.stdin.buffer.read(LARGEST_RECIPE + 1)
    if len(data) > LARGEST_RECIPE:
        raise UsageError("standard input is too large for a recipe", hint="'-' reads a recipe, not a context")
    return data


def list_steps(file: RecipeFile, arguments: BuildArguments) -> RecipeGraph:
    """The stages and their steps; what depends on the config of a base is as with an empty one."""
    host = str(Platform.host())
    given = replace(arguments, keeps_undefined=True, build_platform=host, target_platform=host)
    recipe = read_recipe(file.data, file.name, given, file.kind)
    used = set(_list_needed(recipe, recipe.target))
    sections: dict[int, Mapping[str, Any]] = {}
    usual = arguments.target_platform
    stages = tuple(_list_stage(stage, sections, usual, is_used=stage.index in used) for stage in recipe.stages)
    return RecipeGraph(file.name, recipe.kind, stages, recipe.warnings, recipe.unused_arguments)


def parse_syntax(file: RecipeFile) -> dict[str, Any] | list[dict[str, Any]]:
    """The syntax as JSON: instructions of a Dockerfile, or the stages of a definition in Apptainer's own shape."""
    if file.kind == "dockerfile":
        return read_syntax(file.text, file.name).as_dict()
    stages = parse_stages(file.text, file.name)
    return [stage.as_dict(file.text) for stage in stages]


def show_syntax(file: RecipeFile) -> str:
    """The instructions of a Dockerfile in the notation of BuildKit's parser."""
    if file.kind != "dockerfile":
        raise UsageError(
            f"{file.name} is a definition file, whose syntax has no text form",
            hint="add --json, which prints it in Apptainer's shape",
        )
    return dump_syntax(read_syntax(file.text, file.name))


def convert_file(file: RecipeFile, kind: str = "") -> ConvertedRecipe:
    """The recipe as the other kind; `kind` may name it."""
    if kind == file.kind:
        raise UsageError(
            f"{file.name} is a {'definition file' if kind == 'definition' else 'Dockerfile'} already",
            hint=f"to write the other kind: --to {'dockerfile' if kind == 'definition' else 'definition'}",
        )
    return convert_recipe(file.text, file.name, file.kind)


def lint_file(file: RecipeFile) -> list[LintFinding]:
    """What could be better in a recipe."""
    return lint_recipe(file.data, file.name, file.kind)


def write_recipe(path: Path, text: str, *, force: bool) -> None:
    """Write a recipe; replaces an existing file only with `force`."""
    refuse_existing_text(path, force=force)
    with atomic_output(path, mode=0o644, force=force) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def _read_file(path: Path) -> bytes:
    with explained(path), path.open("rb") as file:
        data = file.read(LARGEST_RECIPE + 1)
    if len(data) > LARGEST_RECIPE:
        raise InvalidRecipe(f"{path} is larger than 64 MiB, and so no recipe", hint="name a recipe, not an image")
    return data


def _list_needed(recipe: Recipe, stage: Stage) -> Iterator[int]:
    """The stage and all that it needs."""
    yield stage.index
    for index in stage.needs:
        yield from _list_needed(recipe, recipe.stages[index])


def _list_stage(stage: Stage, sections: dict[int, Mapping[str, Any]], usual: str, *, is_used: bool) -> ListedStage:
    """List one stage; its platform is told where it is not the usual one."""
    base = stage.base
    platform = "" if base.platform == usual else base.platform
    try:
        plan = stage.plan(sections.get(base.stage, {}) if base.stage is not None else {})
    except InvalidRecipe:
        if is_used:
            raise
        steps: tuple[ListedStep, ...] = ()  # a mistake in a stage that nobody needs
    else:
        sections[stage.index] = plan.section
        steps = tuple(
            ListedStep(step.place.line, _KINDS.get(type(step).__name__, "step"), step.text) for step in plan.steps
        )
    return ListedStage(
        number=stage.index,
        name=name_stage(stage),
        agent=base.agent,
        base=base.reference,
        platform=platform,
        needs=stage.needs,
        is_used=is_used,
        steps=steps,
    )


# `kedge recipe convert`: a recipe of one kind printed as the other.


def convert_recipe(text: str, name: str, kind: str) -> ConvertedRecipe:
    """Print the recipe as the kind that it is not; `kind` is what it is, definition or dockerfile."""
    if kind == "definition":
        return convert_to_dockerfile(text, name)
    return convert_to_definition(text, name)
