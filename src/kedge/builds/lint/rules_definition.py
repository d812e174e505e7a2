# SPDX-License-Identifier: BSD-3-Clause
"""Rules for definition files alone: %setup, homes, template variables, words about the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kedge.builds.definition.definition import Definition
from kedge.builds.lint.recipe_view import HOST_RUN, NOTE, RUN, WARNING, LintFinding, LintRecipe, LintStep
from kedge.builds.lint.rules_packages import is_pip_install
from kedge.builds.lint.shell_commands import ShellCommand
from kedge.builds.step_values import RecipePlace

_WRITERS = frozenset(
    (
        "mkdir",
        "cp",
        "mv",
        "rm",
        "touch",
        "ln",
        "install",
        "chmod",
        "chown",
        "apt-get",
        "apt",
        "yum",
        "dnf",
        "pip",
        "pip3",
    )
)
_ROOTFS = re.compile(r"(?:APPTAINER|SINGULARITY)_ROOTFS")
_TEMPLATE = re.compile(r"\{\{\s*([0-9A-Za-z_]+)\s*\}\}")
_DEFAULT = re.compile(r"^\s*([0-9A-Za-z_]+)\s*=", re.MULTILINE)
_INSTALLER = re.compile(r"\A(?:bash|sh|conda|mamba|micromamba|pip[0-9.]*|cmake|meson)\Z|configure\Z|\.(?:sh|run)\Z")
_HOME = re.compile(r"(?:\A|=)(?:/root|~|\$HOME|\$\{HOME\})/[\w.-]")


def check_definition(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about a definition file; none for a Dockerfile."""
    for stage, definition in zip(recipe.stages, recipe.definitions, strict=False):
        for step in stage.select(HOST_RUN):
            if "setup" in step.flags:
                yield from _check_setup(step)
        if stage.is_result:
            for step in stage.select(RUN):
                yield from _check_homes(step)
        yield from _check_templates(definition)
    if recipe.definitions:
        yield from _check_words(recipe.definitions[-1])


def _check_setup(step: LintStep) -> Iterator[LintFinding]:
    """%setup runs on the host: what it writes outside of the image's root changes the host."""
    entered = False
    variables = {name for c in step.commands for name, value in c.assignments if _ROOTFS.search(value)}
    for command in step.commands:
        mentions = _ROOTFS.search(command.text) is not None or any(
            re.search(rf"\$\{{?{name}\b", command.text) for name in variables
        )
        entered = entered or (command.program in ("cd", "pushd", "chroot") and mentions)
        if command.program in _WRITERS and not mentions and not entered and command.arguments:
            yield LintFinding(
                command.place,
                "setup-on-host",
                WARNING,
                f"'{command.text[:60]}' changes the host, not the image",
                reason="%setup runs on the host, with the host's directories",
                better=f"{command.text} # in %post, or with paths below ${{APPTAINER_ROOTFS}}",
            )


def _check_homes(step: LintStep) -> Iterator[LintFinding]:
    for command in step.commands:
        if is_pip_install(command) and command.has_flag("", "--user"):
            yield _refuse_home(
                command, "pip install --user installs into /root", command.text.replace(" --user", "", 1)
            )
        elif (where := _find_prefix(command)) is not None:
            yield _refuse_home(command, f"{where} is a directory of root alone", "use a directory in /opt instead")


def _find_prefix(command: ShellCommand) -> str | None:
    """Where an installer is told to install, if that is root's home."""
    arguments = command.arguments
    if not _INSTALLER.search(command.program):
        return None
    for place, word in enumerate(arguments):
        value = arguments[place + 1] if word in ("-p", "--prefix") and place + 1 < len(arguments) else ""
        value = word.partition("=")[2] if word.startswith(("--prefix=", "-DCMAKE_INSTALL_PREFIX=")) else value
        if value and _HOME.match(value):
            return value
    return None


def _refuse_home(command: ShellCommand, message: str, better: str) -> LintFinding:
    return LintFinding(
        command.place,
        "home-install",
        WARNING,
        message,
        reason="in a container you are yourself, not root, and cannot read /root; your home is another directory",
        better=better,
    )


def _check_templates(definition: Definition) -> Iterator[LintFinding]:
    arguments = definition.scripts.get("arguments")
    known = set(_DEFAULT.findall(arguments.script)) if arguments is not None else set()
    seen: set[str] = set()
    for number, line in enumerate(definition.raw.split("\n"), definition.line):
        if line.lstrip().startswith("#"):
            continue
        for match in _TEMPLATE.finditer(line):
            if match[1] not in known | seen:
                seen.add(match[1])
                yield LintFinding(
                    RecipePlace(definition.name, number, match.start() + 1),
                    "no-default",
                    NOTE,
                    f"{{{{ {match[1]} }}}} has no default",
                    reason=f"the build fails without --build-arg {match[1]}=VALUE",
                    better=f"%arguments\n    {match[1]}=VALUE",
                )


def _check_words(definition: Definition) -> Iterator[LintFinding]:
    if "help" not in definition.scripts and "labels" not in definition.scripts:
        yield LintFinding(
            RecipePlace(definition.name, definition.line),
            "no-description",
            NOTE,
            "the image does not say what it is",
            reason="others see %help with 'kedge run-help', and %labels with 'kedge inspect'",
            better="%labels\n    Author NAME\n    Version 1.0\n%help\n    What it is for, and how to start it",
        )
