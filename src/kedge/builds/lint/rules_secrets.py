# SPDX-License-Identifier: BSD-3-Clause
"""Rules about secrets: whoever has the image reads its settings, its labels, its history and its files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.base.secret_text import has_secret
from kedge.builds.lint.recipe_view import (
    ARGUMENT,
    ENVIRONMENT,
    LABEL,
    RUN,
    SETTING,
    WARNING,
    LintFinding,
    LintRecipe,
    LintStep,
)

_SECRET_NAME = re.compile(
    r"(?:\A|_)(?:TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|SECRET_KEY|ACCESS_KEY|PRIVATE_KEY)\Z", re.I
)
_MOUNT = "RUN --mount=type=secret,id=NAME COMMAND"


def check_secrets(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about secrets; the secret itself is never shown."""
    for stage in recipe.stages:
        for step in stage.steps:
            if step.kind in (SETTING, ARGUMENT, LABEL):
                yield from _check_pairs(step)
            elif step.kind in (RUN, ENVIRONMENT):
                yield from _check_commands(step)


def _check_pairs(step: LintStep) -> Iterator[LintFinding]:
    for name, value in step.pairs:
        if has_secret(f"{name}={value}"):
            yield _refuse(step, name)
        elif step.kind == ARGUMENT and not value and _SECRET_NAME.search(name):
            yield LintFinding(
                step.place,
                "secret-argument",
                WARNING,
                f"the build argument {name} ends up in the image",
                reason="build arguments are in the history and in the cache; whoever has the image can read them",
                better=f"{_MOUNT}, and: kedge build --secret id=NAME,env={name}",
            )


def _check_commands(step: LintStep) -> Iterator[LintFinding]:
    for command in step.commands:
        line = " ".join([*(f"{name}={value}" for name, value in command.assignments), command.text])
        if has_secret(line):
            what = "the environment" if step.kind == ENVIRONMENT else "a command"
            yield LintFinding(
                command.place,
                "secret-in-recipe",
                WARNING,
                f"a password, token or key is written into {what}",
                reason="whoever has the recipe or the image can read it",
                better=_MOUNT,
            )


def _refuse(step: LintStep, name: str) -> LintFinding:
    return LintFinding(
        step.place,
        "secret-in-recipe",
        WARNING,
        f"the value of {name} looks like a password, token or key",
        reason="whoever has the image can read it; deleting it in a later step does not help",
        better=_MOUNT,
    )
