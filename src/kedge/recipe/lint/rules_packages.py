# SPDX-License-Identifier: BSD-3-Clause
"""Rules about package managers: what is left behind, what asks, and what replaces packages of the base."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.recipe.lint.finding import NOTE, WARNING, LintFinding
from kedge.recipe.lint.known_bases import find_shipped, is_nvidia_framework
from kedge.recipe.lint.recipe_view import ENVIRONMENT, RUN, SETTING, LintRecipe, LintStage, LintStep
from kedge.recipe.lint.shell_commands import ShellCommand

_APT = ("apt-get", "apt", "aptitude")
_CONDA = ("conda", "mamba", "micromamba")
_YUM = ("yum", "dnf", "microdnf")
_CONDA_INSTALLS = ("install", "create", "update", "upgrade")
_PIP = re.compile(r"pip[0-9.]*\Z")
_PYTHON = re.compile(r"python[0-9.]*\Z")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(==|~=|>=|<=|<|>|!=)?")
_LISTS = re.compile(r"rm\b.*(?:/var/lib/\{?apt|/var/lib/?(?:\s|\*|$)|/var/\{)|apt(?:-get)?\b.*\bdist-?clean")
_PIP_CACHE = re.compile(r"rm\b.*\.cache|pip[0-9.]* cache purge|rm\b.*/root/?(?:\s|\*|$)")
_CACHE_MOUNT = "type=cache"
_COMPANIONS = ("torchaudio", "torchvision", "torchtext")  # each version of them wants one version of torch
_LONGEST = 120  # characters of a command that is shown again
# bases with conda that ask; others may have set always_yes
_KNOWN_CONDA = re.compile(
    r"(?i)(?:miniconda|miniforge|mambaforge|anaconda)[^\s]*\.sh|continuumio/|condaforge/|anaconda3?:"
)


def check_packages(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about package managers."""
    for stage in recipe.stages:
        for step in stage.select(RUN):
            yield from _take_first(_check_questions(step, recipe))
            if stage.is_result:
                yield from _check_apt(step, recipe)
                yield from _check_caches(step, stage, recipe)
            yield from _check_replaced(step, stage, recipe)
        yield from _check_lone_updates(stage, recipe)


def _take_first(findings: Iterator[LintFinding]) -> Iterator[LintFinding]:
    """One finding for each rule: a step that makes a mistake makes it again."""
    return iter({finding.rule: finding for finding in reversed(list(findings))}.values())


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


def _check_apt(step: LintStep, recipe: LintRecipe) -> Iterator[LintFinding]:
    installs = [command for command in step.commands if is_apt(command, "install", "build-dep")]
    if not installs:
        return
    has_mount = any(_CACHE_MOUNT in flag and "apt" in flag for flag in step.flags)
    cleans = any(_LISTS.search(command.text) for command in step.commands)
    updates = any(is_apt(command, "update") for command in step.commands)
    if updates and not cleans and not has_mount:
        yield LintFinding(
            installs[-1].place,
            "apt-lists",
            WARNING,
            "apt-get leaves its package lists in the image",
            reason="the lists take 20 to 50 MB and are out of date tomorrow; "
            + (
                "a later RUN cannot remove them from this layer"
                if recipe.kind == "dockerfile"
                else "nothing needs them"
            ),
            better=f"apt-get update && {_shorten(installs[-1])} && rm -rf /var/lib/apt/lists/*",
        )
    if "install-recommends" not in recipe.text.lower().replace("_", "-").replace("::", "-").replace(
        "apt-install", "install"
    ):
        yield LintFinding(
            installs[0].place,
            "apt-recommends",
            NOTE,
            "apt-get also installs recommended packages",
            reason="recommended packages are often larger than the ones you asked for",
            better=_insert(_shorten(installs[0]), "install", "--no-install-recommends"),
        )


def _check_questions(step: LintStep, recipe: LintRecipe) -> Iterator[LintFinding]:
    """Installers that ask: no build can answer."""
    for command in step.commands:
        is_answered = command.source is not None and command.source.program in ("yes", "echo", "printf")
        if is_answered:
            continue
        if is_apt(command, "install") and not _is_quiet_apt(command) and "assume-yes" not in recipe.text.lower():
            better = command.text.replace("install", "install -y", 1)
            yield _ask(command, "apt-question", command.program, better)
        elif (
            command.program in ("conda", "mamba")
            and _KNOWN_CONDA.search(recipe.text)
            and command.names[:1] in (("install",), ("create",), ("update",))
            and not command.has_flag("y", "--yes", "--file=", "--dry-run")
            and not re.search(r"always_yes|ALWAYS_YES", recipe.text)
        ):
            yield _ask(command, "conda-question", command.program, f"{command.text} -y")
        elif (
            command.program in ("yum", "dnf")
            and command.names[:1] in (("install",), ("update",), ("groupinstall",), ("localinstall",))
            and not command.has_flag("y", "--assumeyes")
            and "assumeyes" not in recipe.text
        ):
            yield _ask(command, "yum-question", command.program, command.text.replace("install", "install -y", 1))


def _is_quiet_apt(command: ShellCommand) -> bool:
    is_simulated = command.has_flag("s", "--download-only", "--simulate", "--dry-run")
    uses_variables = any("$" in argument and "-" not in argument for argument in command.arguments[:2])
    return (
        command.has_flag("y", "--yes", "--assume-yes", "-qq", "--force-yes", "-qqy")
        or is_simulated
        or uses_variables
        or any("Assume-Yes" in argument for argument in command.arguments)
    )


def _ask(command: ShellCommand, rule: str, program: str, better: str) -> LintFinding:
    return LintFinding(
        command.place,
        rule,
        WARNING,
        f"{program} asks for confirmation here",
        reason="nobody can answer during a build, so the step fails or waits",
        better=better,
    )


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


def _check_caches(step: LintStep, stage: LintStage, recipe: LintRecipe) -> Iterator[LintFinding]:
    text = step.text
    mounts = [flag for flag in step.flags if _CACHE_MOUNT in flag]
    pips = [command for command in step.commands if is_pip_install(command)]
    if pips and not mounts and not _has_no_pip_cache(stage, text) and not _PIP_CACHE.search(text):
        bad = [command for command in pips if not command.has_flag("", "--no-cache-dir", "--no-cache")]
        if bad:
            yield LintFinding(
                bad[0].place,
                "pip-cache",
                WARNING,
                "pip leaves its downloads in the image",
                reason="the cache in /root/.cache/pip is as large as the packages, and nothing reads it again",
                better=_insert(bad[0].text, "install", "--no-cache-dir"),
            )
    yield from _check_conda(step, mounts)
    yield from _check_others(step, mounts)
    del recipe


def _has_no_pip_cache(stage: LintStage, text: str) -> bool:
    settings = [name for step in stage.select(SETTING, ENVIRONMENT) for name, _ in step.pairs]
    return "PIP_NO_CACHE_DIR" in settings or "PIP_NO_CACHE_DIR" in text or "no-cache-dir" in _pip_configuration(text)


def _pip_configuration(text: str) -> str:
    return " ".join(re.findall(r"pip[0-9.]* config set \S+ \S+", text))


def _check_conda(step: LintStep, mounts: list[str]) -> Iterator[LintFinding]:
    installs = [
        command
        for command in step.commands
        if command.program in _CONDA and _conda_action(command) in (*_CONDA_INSTALLS, "env")
    ]
    cleans = any(command.program in _CONDA and "clean" in command.names for command in step.commands)
    if installs and not cleans and not mounts and not re.search(r"rm\b[^\n;&]*(?:/pkgs|conda/pkgs)", step.text):
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


def _check_others(step: LintStep, mounts: list[str]) -> Iterator[LintFinding]:
    yums = [
        command for command in step.commands if command.program in _YUM and "install" in " ".join(command.names[:1])
    ]
    cleans = re.search(r"\b(?:yum|dnf|microdnf)\b[^\n;&|]*\bclean\b|rm\b[^\n;&]*/var/cache", step.text)
    if yums and not cleans and not mounts:
        yield LintFinding(
            yums[-1].place,
            "yum-cache",
            WARNING,
            f"{yums[-1].program} leaves its cache in the image",
            reason="metadata and packages in /var/cache take 50 MB and more",
            better=f"{yums[-1].text} && {yums[-1].program} clean all",
        )
    apks = [command for command in step.commands if command.program == "apk" and command.names[:1] == ("add",)]
    if apks and not mounts and not re.search(r"rm\b[^\n;&]*/var/cache", step.text):
        bad = [command for command in apks if not command.has_flag("", "--no-cache")]
        updates = any(
            c.program == "apk" and (c.names[:1] == ("update",) or c.has_flag("U", "--update-cache", "--update"))
            for c in step.commands
        )
        if bad and updates:
            yield LintFinding(
                bad[0].place,
                "apk-cache",
                WARNING,
                "apk leaves its index in the image",
                reason="the index in /var/cache/apk is out of date tomorrow",
                better=_insert(bad[0].text, "add", "--no-cache"),
            )


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


def _shorten(command: ShellCommand) -> str:
    """The command, or a short one in its place."""
    return command.text if len(command.text) <= _LONGEST else f"{command.program} install -y PACKAGES"


def _insert(text: str, word: str, option: str) -> str:
    return re.sub(rf"\b{word}\b", f"{word} {option}", text, count=1)
