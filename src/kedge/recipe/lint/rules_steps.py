# SPDX-License-Identifier: BSD-3-Clause
"""Rules about what steps do to each other: clean-ups that come too late, copies that come too early, words in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kedge.recipe.lint.finding import NOTE, WARNING, LintFinding
from kedge.recipe.lint.known_bases import has_plain_shell
from kedge.recipe.lint.recipe_view import ADD, COPY, RUN, USER, LintRecipe, LintStage, LintStep
from kedge.recipe.lint.rules_packages import is_apt, is_pip_install
from kedge.recipe.lint.shell_commands import ShellCommand

_CACHES = re.compile(r"/var/lib/apt|/var/cache|/root/\.cache|~/\.cache|/tmp/\*|/var/tmp/\*|\.cache/pip|/pkgs\b")
_ARCHIVE = re.compile(r"\.(?:tar|tgz|tbz2?|txz|tar\.(?:gz|bz2|xz|zst)|gz|bz2|xz)\Z", re.I)
_ADDRESS = re.compile(r"https?://", re.I)
_REPOSITORY = re.compile(r"(?:https?://|git@).*\.git(?:#.*)?\Z")
_SHELLS = ("sh", "bash", "zsh", "dash")
_DOWNLOADERS = ("curl", "wget")


def check_steps(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about steps."""
    for stage in recipe.stages:
        for step in stage.select(RUN):
            yield from _check_run(step, stage, recipe)
        if recipe.kind == "dockerfile":
            yield from _check_copies(stage)
            if stage.is_result:
                yield from _check_late_cleanups(stage)
    if recipe.kind == "dockerfile":
        yield from _check_user(recipe.result)


def _check_run(step: LintStep, stage: LintStage, recipe: LintRecipe) -> Iterator[LintFinding]:
    commands = step.commands
    if recipe.kind == "dockerfile" and len(commands) == 1 and commands[0].program == "cd":
        yield LintFinding(
            commands[0].place,
            "lone-cd",
            WARNING,
            "this cd has no effect: the next instruction begins in WORKDIR again",
            reason="every RUN is a shell of its own",
            better=f"WORKDIR {' '.join(commands[0].names) or '/'}",
        )
    yield from _check_sudo(step, stage, recipe)
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


def _check_sudo(step: LintStep, stage: LintStage, recipe: LintRecipe) -> Iterator[LintFinding]:
    command = next((command for command in step.commands if command.uses_sudo), None)
    is_user = any(user.text.split(":")[0] not in ("root", "0") for user in stage.select(USER))
    if command is None or is_user:
        return
    yield LintFinding(
        command.place,
        "sudo",
        WARNING if recipe.kind == "definition" else NOTE,
        "sudo is not needed: steps run as root",
        reason="most base images have no sudo, and the step fails there",
        better=command.text,
    )


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
        plain = [source for source in step.sources if not _ADDRESS.match(source) and not source.startswith("git@")]
        if plain and not any(_ARCHIVE.search(source) or "*" in source or "$" in source for source in plain):
            yield LintFinding(
                step.place,
                "add-for-copy",
                NOTE,
                "ADD copies files here as COPY does",
                reason="ADD also unpacks archives and fetches addresses, which surprises readers",
                better=re.sub(r"(?i)\AADD", "COPY", step.text, count=1),
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


def _check_user(stage: LintStage) -> Iterator[LintFinding]:
    users = list(stage.select(USER))
    is_root = [user.text.split(":")[0] in ("root", "0") for user in users]
    if len(users) > 1 and is_root[-1] and not all(is_root):
        before = next(user.text for user, root in zip(reversed(users), reversed(is_root), strict=True) if not root)
        yield LintFinding(
            users[-1].place,
            "root-at-the-end",
            NOTE,
            "programs of this image run as root under docker",
            reason="the last USER is root, although an earlier one was not; kedge and Apptainer run programs as you",
            better=f"USER {before}",
        )
