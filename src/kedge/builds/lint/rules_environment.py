# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what containers find when they start: PATH and libraries, files that a mount hides, costly settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.builds.lint.recipe_view import (
    ENVIRONMENT,
    NOTE,
    SETTING,
    START,
    WARNING,
    LintFinding,
    LintRecipe,
    LintStage,
    LintStep,
    sets_library_path,
)
from kedge.builds.step_values import RecipePlace

_SYSTEM = re.compile(r"(?:\A|:)/(?:usr/)?bin/?(?::|\Z)")
_HIDDEN = re.compile(r"(?:\A|[\s\"'=:\[,])(/(?:var/)?tmp/[\w./+-]+)")
_LOGS = re.compile(r"\.(?:log|out|err|pid|lock|sock)\Z")
_COSTLY = ("source", ".")
_PRINTING = ("echo", "printf", "ls", "module", "mkdir", "cd")


def check_environment(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about how containers start."""
    stage = recipe.result
    for step in stage.select(SETTING, ENVIRONMENT):
        for name, value, place in _list_settings(step):
            yield from _check_setting(name, value, place, stage, recipe)
    for step in stage.select(ENVIRONMENT):
        yield from _check_commands(step)
    for step in stage.select(START):
        yield from _check_start(step, recipe)


def _list_settings(step: LintStep) -> Iterator[tuple[str, str, RecipePlace]]:
    if step.kind == SETTING:
        yield from ((name, value, step.place) for name, value in step.pairs)
    for command in step.commands:
        if "{{" in command.text:  # a template: what it holds is not known
            continue
        for name, value in command.assignments:
            yield name, value, command.place
        if command.program == "export":
            for word in command.arguments:
                name, equals, value = word.partition("=")
                if equals:
                    yield name, value, command.place


def _check_setting(
    name: str, value: str, place: RecipePlace, stage: LintStage, recipe: LintRecipe
) -> Iterator[LintFinding]:
    keeps = "$" in value or "`" in value
    if name == "PATH" and value and not keeps and not _SYSTEM.search(value):
        yield LintFinding(
            place,
            "path-overwritten",
            WARNING,
            "PATH loses the system's programs: even ls is not found",
            reason="the value does not contain the old PATH",
            better=_extend(name, value, recipe.kind),
        )
    if name == "LD_LIBRARY_PATH" and value and not keeps and sets_library_path(stage.image):
        yield LintFinding(
            place,
            "library-path-overwritten",
            WARNING,
            "LD_LIBRARY_PATH loses what the base image has in it",
            reason=f"{stage.image} sets it, so that programs find its libraries",
            better=_extend(name, value, recipe.kind),
        )
    if name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH") and re.search(r"(?:\A|:)/root/", value):
        yield LintFinding(
            place,
            "private-directory",
            WARNING if recipe.kind == "definition" else NOTE,
            f"{name} names a directory in /root, which other users cannot read",
            reason="on a cluster you are not root in the container, and /root is closed to you",
            better="install to /opt or /usr/local instead",
        )


def _extend(name: str, value: str, kind: str) -> str:
    return f'ENV {name}="{value}:${name}"' if kind == "dockerfile" else f'export {name}="{value}:${name}"'


def _check_commands(step: LintStep) -> Iterator[LintFinding]:
    """Commands in %environment run at every start of a container."""
    for command in step.commands:
        if command.program in _PRINTING and not command.text.startswith("cd ->"):
            yield LintFinding(
                command.place,
                "command-in-environment",
                WARNING,
                f"'{command.program}' runs at every start of a container",
                reason="what it prints mixes with the output of programs; what it changes surprises them",
                better="move it to %post or %runscript",
            )
        elif command.program in _COSTLY or any("$(" in value for _, value in command.assignments):
            yield LintFinding(
                command.place,
                "slow-environment",
                NOTE,
                f"'{command.text[:40]}' runs at every start of a container",
                reason="every process of a job pays for it; and it may fail where the image's files cannot be read",
                better="write the values it sets, as: export NAME=VALUE",
            )


def _check_start(step: LintStep, recipe: LintRecipe) -> Iterator[LintFinding]:
    match = _HIDDEN.search(step.text)
    if match is None or _LOGS.search(match[1]) or not _is_put_there(match[1], recipe):
        return
    yield LintFinding(
        step.place,
        "hidden-by-mount",
        WARNING,
        f"{match[1]} is not there at run time",
        reason="containers see the host's /tmp and /var/tmp instead of the image's",
        better="put the file into /opt or /usr/local/bin",
    )


def _is_put_there(path: str, recipe: LintRecipe) -> bool:
    """Whether the recipe itself puts something at this path: programs also write to /tmp, which is fine."""
    for step in recipe.result.steps:
        if step.destination and (path == step.destination or path.startswith(step.destination.rstrip("/") + "/")):
            return True
    return False
