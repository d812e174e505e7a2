# SPDX-License-Identifier: BSD-3-Clause
"""Rules about package managers: lists that are old, what conda leaves and asks, what replaces packages of the base."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.builds.lint.recipe_view import (
    RUN,
    WARNING,
    LintFinding,
    LintRecipe,
    LintStage,
    LintStep,
    ShellCommand,
    find_shipped,
    is_nvidia_framework,
)

_APT = ("apt-get", "apt", "aptitude")
_CONDA = ("conda", "mamba", "micromamba")
_CONDA_INSTALLS = ("install", "create", "update", "upgrade")
_PIP = re.compile(r"pip[0-9.]*\Z")
_PYTHON = re.compile(r"python[0-9.]*\Z")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(==|~=|>=|<=|<|>|!=)?")
_COMPANIONS = ("torchaudio", "torchvision", "torchtext")  # each version of them wants one version of torch
# bases with conda that ask; others may have set always_yes
_KNOWN_CONDA = re.compile(
    r"(?i)(?:miniconda|miniforge|mambaforge|anaconda)[^\s]*\.sh|continuumio/|condaforge/|anaconda3?:"
)


def check_packages(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about package managers."""
    for stage in recipe.stages:
        for step in stage.select(RUN):
            yield from _check_question(step, recipe)
            if stage.is_result:
                yield from _check_conda(step)
            yield from _check_replaced(step, stage, recipe)
        yield from _check_lone_updates(stage, recipe)


def is_apt(command: ShellCommand, *actions: str) -> bool:
    """Whether a command is apt's, with one of these actions."""
    return command.program in _APT and any(name in actions for name in command.names[:3])


def is_pip_install(command: ShellCommand) -> bool:
    """`pip install`, `python3 -m pip install`."""
    return next((word for word in _pip_words(command) if not word.startswith("-")), "") == "install"


def _pip_words(command: ShellCommand) -> tuple[str, ...]:
    arguments = command.arguments
    if _PIP.match(command.program):
        return arguments
    if _PYTHON.match(command.program) and arguments[:2] == ("-m", "pip"):
        return arguments[2:]
    return ()


def _check_question(step: LintStep, recipe: LintRecipe) -> Iterator[LintFinding]:
    """conda asks, and no build can answer; the first command of a step stands for all."""
    if not _KNOWN_CONDA.search(recipe.text) or re.search(r"always_yes|ALWAYS_YES", recipe.text):
        return
    for command in step.commands:
        is_answered = command.source is not None and command.source.program in ("yes", "echo", "printf")
        if (
            command.program in ("conda", "mamba")
            and not is_answered
            and command.names[:1] in (("install",), ("create",), ("update",))
            and not command.has_flag("y", "--yes", "--file=", "--dry-run")
        ):
            yield LintFinding(
                command.place,
                "conda-question",
                WARNING,
                f"{command.program} asks for confirmation here",
                reason="nobody can answer during a build, so the step fails or waits",
                better=f"{command.text} -y",
            )
            return


def _check_lone_updates(stage: LintStage, recipe: LintRecipe) -> Iterator[LintFinding]:
    """`RUN apt-get update` in a step of its own, and an install in a later one."""
    if recipe.kind != "dockerfile":
        return
    updated: LintStep | None = None
    for step in stage.select(RUN):
        updates = any(is_apt(command, "update") for command in step.commands)
        installs = any(
            is_apt(command, "install", "upgrade", "dist-upgrade", "full-upgrade") for command in step.commands
        )
        if updates and not installs:
            updated = step
        elif installs and not updates and updated is not None:
            place = next(command.place for command in updated.commands if is_apt(command, "update"))
            yield LintFinding(
                place,
                "apt-lone-update",
                WARNING,
                "apt-get update stands in a RUN of its own",
                reason="when this step comes from the build cache its lists are old, and the install in a later "
                "RUN fails",
                better="RUN apt-get update && apt-get install -y PACKAGES && rm -rf /var/lib/apt/lists/*",
            )
            updated = None


def _check_conda(step: LintStep) -> Iterator[LintFinding]:
    installs = [
        command
        for command in step.commands
        if command.program in _CONDA and _conda_action(command) in (*_CONDA_INSTALLS, "env")
    ]
    has_mount = any("type=cache" in flag for flag in step.flags)
    cleans = any(command.program in _CONDA and "clean" in command.names for command in step.commands)
    if installs and not cleans and not has_mount and not re.search(r"rm\b[^\n;&]*(?:/pkgs|conda/pkgs)", step.text):
        yield LintFinding(
            installs[-1].place,
            "conda-cache",
            WARNING,
            "conda leaves its package cache in the image",
            reason="every package is there twice: unpacked in pkgs and as the archive it came in",
            better=f"{installs[-1].text} && {installs[-1].program} clean -afy",
        )


def _conda_action(command: ShellCommand) -> str:
    names = command.names
    if names[:1] == ("env",):
        return "env" if names[1:2] in (("create",), ("update",)) else ""
    return names[0] if names else ""


def _check_replaced(step: LintStep, stage: LintStage, recipe: LintRecipe) -> Iterator[LintFinding]:
    """`pip install` of what the base image ships, in another version, or of what brings another one along."""
    shipped = find_shipped(stage.image)
    if not shipped or "PIP_CONSTRAINT" in recipe.text:
        return
    for command in step.commands:
        if not is_pip_install(command) or command.has_flag("c", "--constraint", "--no-deps", "--target"):
            continue
        name, reason = _find_replaced(command, stage.image, shipped)
        if name:
            yield LintFinding(
                command.place,
                "pip-replaces",
                WARNING,
                f"pip may replace {name} of the base image",
                reason=reason,
                better=f"{_insert(command.text, 'install', '--no-deps')}, or build with --protect",
            )


def _find_replaced(command: ShellCommand, image: str, shipped: frozenset[str]) -> tuple[str, str]:
    """The package that is replaced, and why; the first one counts."""
    is_upgrade = command.has_flag("U", "--upgrade", "--force-reinstall")
    for word in command.names:
        match = _REQUIREMENT.match(word)
        name = match[1].lower().replace("_", "-") if match is not None else ""
        if is_nvidia_framework(image) and name in _COMPANIONS:
            return "torch", f"{name} requires the torch that it was built for, which is not NVIDIA's build in {image}"
        if name in shipped and match is not None and (is_upgrade or match[2]):
            return name, f"{image} ships its own build of {name}; another one may not match its CUDA, and is slower"
    return "", ""


def _insert(text: str, word: str, option: str) -> str:
    return re.sub(rf"\b{word}\b", f"{word} {option}", text, count=1)
