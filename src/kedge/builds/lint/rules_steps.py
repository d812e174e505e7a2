# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what steps do to each other: clean-ups that come too late, copies that come too early, unseen scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kedge.builds.lint.recipe_view import (
    ADD,
    COPY,
    NOTE,
    RUN,
    WARNING,
    LintFinding,
    LintRecipe,
    LintStage,
    LintStep,
    has_plain_shell,
)
from kedge.builds.lint.rules_packages import is_apt, is_pip_install
from kedge.builds.lint.shell_commands import ShellCommand

_CACHES = re.compile(r"/var/lib/apt|/var/cache|/root/\.cache|~/\.cache|/tmp/\*|/var/tmp/\*|\.cache/pip|/pkgs\b")
_ADDRESS = re.compile(r"https?://", re.I)
_REPOSITORY = re.compile(r"(?:https?://|git@).*\.git(?:#.*)?\Z")
_SHELLS = ("sh", "bash", "zsh", "dash")
_DOWNLOADERS = ("curl", "wget")


def check_steps(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about steps."""
    for stage in recipe.stages:
        for step in stage.select(RUN):
            yield from _check_run(step, stage)
        if recipe.kind == "dockerfile":
            yield from _check_copies(stage)
            if stage.is_result:
                yield from _check_late_cleanups(stage)


def _check_run(step: LintStep, stage: LintStage) -> Iterator[LintFinding]:
    commands = step.commands
    for command in commands:
        is_shell = command.program in _SHELLS and not command.names
        if is_shell and command.source is not None and command.source.program in _DOWNLOADERS:
            yield LintFinding(
                command.place,
                "piped-script",
                NOTE,
                f"a script from the network runs unseen: {command.source.program} | {command.program}",
                reason="the script may be another one tomorrow, and a download that breaks off runs in part",
                better="download it, compare its checksum (sha256sum -c), then run it",
            )
    if step.shell == "sh" and has_plain_shell(stage.image):
        yield from _check_source(commands)


def _check_source(commands: Sequence[ShellCommand]) -> Iterator[LintFinding]:
    command = next((command for command in commands if command.program == "source"), None)
    if command is not None:
        yield LintFinding(
            command.place,
            "source-in-sh",
            WARNING,
            "'source' does not exist in this image's /bin/sh",
            reason="steps run in /bin/sh, which is dash in Debian and Ubuntu; there, the command is a dot",
            better=f". {' '.join(command.names)}",
        )


def _check_copies(stage: LintStage) -> Iterator[LintFinding]:
    for step in stage.select(ADD):
        addresses = [source for source in step.sources if _ADDRESS.match(source) and not _REPOSITORY.match(source)]
        if addresses and not any(flag.startswith("--checksum") for flag in step.flags):
            yield LintFinding(
                step.place,
                "unchecked-download",
                NOTE,
                f"nothing checks what {addresses[0]} gives",
                reason="the file may be another one tomorrow; and if it is an archive, it stays in the image",
                better=f"ADD --checksum=sha256:DIGEST {addresses[0]} {step.destination}",
            )
    yield from _check_early_copy(stage)


def _check_early_copy(stage: LintStage) -> Iterator[LintFinding]:
    """`COPY . .` before dependencies are installed: every change of a file installs them again."""
    copied: LintStep | None = None
    for step in stage.steps:
        if step.kind in (COPY, ADD) and "--from" not in step.flags and step.sources in ((".",), ("./",)):
            copied = copied or step
        if step.kind == RUN and copied is not None:
            command = next((command for command in step.commands if _installs_dependencies(command)), None)
            if command is not None and not any(_needs_code(other) for other in step.commands):
                yield LintFinding(
                    copied.place,
                    "early-copy",
                    WARNING,
                    "each change of any file installs all dependencies again",
                    reason=f"everything is copied before '{command.text[:60]}' in line {command.place.line}, so "
                    "no change "
                    "of a file finds that step in the build cache",
                    better=_propose_copy(command, copied),
                )
                return


def _installs_dependencies(command: ShellCommand) -> bool:
    if is_pip_install(command):
        return any(word in ("-r", "--requirement") for word in command.arguments)
    return is_apt(command, "install") or (command.program == "npm" and command.names[:1] in (("install",), ("ci",)))


def _needs_code(command: ShellCommand) -> bool:
    """Whether a command of the same step works on the code that was copied."""
    if is_pip_install(command):
        return any(word in (".", "-e", "--editable") or word.startswith(("./", ".[")) for word in command.arguments)
    return command.program in ("make", "cmake", "python", "python3", "mvn", "go", "cargo", "sh", "bash")


def _propose_copy(command: ShellCommand, copied: LintStep) -> str:
    arguments = command.arguments
    if is_pip_install(command):
        place = max(arguments.index(word) for word in ("-r", "--requirement") if word in arguments)
        file = arguments[place + 1] if place + 1 < len(arguments) else "requirements.txt"
        return f"COPY {file.rpartition('/')[2]} {copied.destination}\nRUN {command.text}\n{copied.text}"
    return f"RUN {command.text}\n{copied.text}"


def _check_late_cleanups(stage: LintStage) -> Iterator[LintFinding]:
    """A RUN that only removes what earlier steps made: their layers keep it."""
    for place, step in enumerate(stage.steps):
        if step.kind != RUN or not step.commands or not any(s.kind in (RUN, COPY, ADD) for s in stage.steps[:place]):
            continue
        if all(_is_cleanup(command) for command in step.commands):
            yield LintFinding(
                step.commands[0].place,
                "late-cleanup",
                WARNING,
                "this RUN frees no space: what it removes stays in earlier layers",
                reason="each instruction is a layer of its own, and a later layer can only hide files",
                better="put the clean-up into the RUN that makes the files, with &&",
            )


def _is_cleanup(command: ShellCommand) -> bool:
    if command.program == "rm":
        return bool(command.names) and all(_CACHES.search(name) for name in command.names)
    if command.program in ("conda", "mamba", "micromamba", "yum", "dnf", "microdnf"):
        return "clean" in command.names[:1]
    if command.program in ("apt-get", "apt"):
        return command.names[:1] in (("clean",), ("autoclean",))
    return command.program.startswith("pip") and command.names[:2] == ("cache", "purge")
