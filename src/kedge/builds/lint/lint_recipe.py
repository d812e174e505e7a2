# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recipe lint`: all rules over a recipe of either kind.

A rule that is wrong about a line is switched off there: `# kedge: ignore=RULE` on the line before it, or `ignore`
alone for all rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kedge.base.secret_text import has_secret
from kedge.builds.definition.definition import Definition
from kedge.builds.dockerfile.checks import check_content, read_content
from kedge.builds.lint.recipe_view import (
    ADD,
    ARGUMENT,
    COPY,
    ENVIRONMENT,
    HOST_RUN,
    LABEL,
    NOTE,
    RUN,
    SETTING,
    START,
    WARNING,
    LintFinding,
    LintRecipe,
    LintStage,
    LintStep,
    ShellCommand,
    has_plain_shell,
    is_unpinned,
    name_runtime,
    sets_library_path,
    view_definition,
    view_dockerfile,
)
from kedge.builds.lint.rules_packages import check_packages, is_apt, is_pip_install
from kedge.builds.read_recipe import decode_recipe, find_kind, read_recipe
from kedge.builds.step_values import BuildArguments, RecipePlace, ValuesTooLong
from kedge.errors import InvalidRecipe

# Rules about what steps do to each other: clean-ups that come too late, copies that come too early, unseen scripts.

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


# Rules about what containers find when they start: PATH and libraries, files that a mount hides, costly settings.

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
        yield from _check_environment_commands(step)
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


def _check_environment_commands(step: LintStep) -> Iterator[LintFinding]:
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


# Rules about secrets: whoever has the image reads its settings, its labels, its history and its files.

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


# Rules for definition files alone: %setup, homes, template variables, words about the image.

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


# BuildKit's own checks of Dockerfiles, under the names `docker build` prints; `# check=skip=NAME` counts here too.

# The reason, and the better line. Secrets have rules of their own.
_RULES = {
    "NoEmptyContinuation": ("docker build will refuse it some day", "remove the empty line"),
    "MaintainerDeprecated": ("MAINTAINER is deprecated", 'LABEL org.opencontainers.image.authors="NAME"'),
    "ConsistentInstructionCasing": ("one case is easier to read", "write all instructions in the same case"),
    "StageNameCasing": ("the names of stages count in lower case", "write the name in lower case"),
    "FromAsCasing": ("one case is easier to read", "FROM IMAGE AS NAME"),
    "ReservedStageName": ("FROM and --from would mean something else", "give the stage another name"),
    "DuplicateStageName": ("--from means the last stage of a name", "give every stage a name of its own"),
    "UndefinedArgInFrom": ("FROM sees only an ARG that stands before the first FROM", "ARG NAME=DEFAULT before FROM"),
    "InvalidDefaultArgInFrom": ("the build fails without --build-arg", "give the ARG a default"),
    "RedundantTargetPlatform": ("the target platform is the default", "leave out --platform"),
    "FromPlatformFlagConstDisallowed": (
        "--platform of the build is ignored there",
        "leave it out and build with --platform, or name the stage after the platform",
    ),
    "MultipleInstructionsDisallowed": ("only the last one of a stage counts", "remove this one"),
    "WorkdirRelativePath": ("the base image may change its directory", "WORKDIR /PATH"),
    "JSONArgsRecommended": (
        "a shell in between does not pass signals on, so the program is not stopped in an orderly way",
        'write an array: ["PROGRAM", "ARGUMENT"]',
    ),
    "LegacyKeyValueFormat": ("all words behind the name are its value", "NAME=VALUE"),
    "ExposeProtoCasing": ("protocols are written in lower case", "EXPOSE 80/tcp"),
    "ExposeInvalidFormat": ("ports of the host are chosen when the image runs", "EXPOSE 80"),
}


def check_dockerfile(recipe: LintRecipe) -> Iterator[LintFinding]:
    """The findings of BuildKit's checks; none for definition files."""
    if recipe.kind != "dockerfile":
        return
    for warning in check_content(read_content(recipe.text, recipe.name)):
        if warning.rule in _RULES:
            reason, better = _RULES[warning.rule]
            yield LintFinding(warning.place, warning.rule, NOTE, warning.message, reason=reason, better=better)


# Rules about what a recipe begins with: names that change, images that are gone, compilers in the result.

_REGISTRIES = ("docker", "library", "oras")


def check_bases(recipe: LintRecipe) -> Iterator[LintFinding]:
    """All findings about bases."""
    names: set[str] = set()
    for stage in recipe.stages:
        is_image = stage.image.lower() not in names and stage.image.lower() != "scratch"
        if is_image and stage.agent in _REGISTRIES and is_unpinned(stage.image):
            yield _name_unpinned(stage, recipe.kind)
        if stage.agent == "shub":
            yield LintFinding(
                stage.place,
                "singularity-hub",
                WARNING,
                "Singularity Hub is closed: the base cannot be fetched",
                reason="shub.to stopped serving images in 2021",
                better="Bootstrap: docker\nFrom: IMAGE:TAG",
            )
        names.add(stage.name.lower())
    yield from _check_compilers(recipe)


def _name_unpinned(stage: LintStage, kind: str) -> LintFinding:
    bare = stage.image.removesuffix(":latest")
    word = "FROM" if kind == "dockerfile" else "From:"
    return LintFinding(
        stage.place,
        "unpinned-base",
        WARNING,
        f"{stage.image} may be another image tomorrow",
        reason="without a tag, or with 'latest', each build takes whatever is newest",
        better=f"{word} {bare}:TAG, or {bare}@sha256:DIGEST; 'kedge build --lock' writes the digests for you",
    )


def _check_compilers(recipe: LintRecipe) -> Iterator[LintFinding]:
    result = recipe.result
    runtime = name_runtime(result.image)
    if runtime:
        yield LintFinding(
            result.place,
            "compilers-in-result",
            NOTE,
            f"the result has all compilers and headers of {result.image}",
            reason="a devel image is some gigabytes larger than its runtime image, which is enough to run programs",
            better=f"compile in a first stage, and copy the result into {runtime}",
        )


_IGNORE = re.compile(r"\s*#\s*kedge:\s*ignore(?:\s*=\s*([\w, -]+))?\s*\Z")


def _check_values(recipe: LintRecipe) -> Iterator[LintFinding]:
    """Whether a build refuses what the recipe's own values grow to; other mistakes are the build's to tell."""
    text = recipe.text.encode("utf-8", "surrogateescape")
    try:
        for stage in read_recipe(text, recipe.name, BuildArguments(keeps_undefined=True), recipe.kind).stages:
            stage.plan({})
    except ValuesTooLong as error:
        reason = "the build fails there: a few lines could fill any memory"
        yield LintFinding(error.place, "values-too-long", WARNING, error.problem, reason=reason, better=error.remedy)
    except InvalidRecipe:
        return


_CHECKS: tuple[Callable[[LintRecipe], Iterator[LintFinding]], ...] = (
    check_bases,
    check_packages,
    check_secrets,
    check_steps,
    check_environment,
    check_definition,
    check_dockerfile,
    _check_values,
)


def lint_recipe(data: bytes, name: str, kind: str = "") -> list[LintFinding]:
    """All findings about a recipe, in its order; raises InvalidRecipe for one that cannot be read."""
    text = decode_recipe(data, name)
    view = view_definition if (kind or find_kind(text, name)) == "definition" else view_dockerfile
    recipe = view(text, name)
    if not recipe.stages:
        return []
    ignored = _list_ignored(text)
    findings = [finding for check in _CHECKS for finding in check(recipe)]
    kept = [finding for finding in findings if not _is_ignored(finding, ignored)]
    return sorted(dict.fromkeys(kept), key=lambda finding: (finding.place.line, finding.place.column, finding.rule))


def _list_ignored(text: str) -> dict[int, tuple[str, ...]]:
    """The rules that are switched off, by the lines they are switched off for; none named means all."""
    ignored: dict[int, tuple[str, ...]] = {}
    rules: tuple[str, ...] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        match = _IGNORE.match(line)
        if match is not None:
            rules = tuple(word.strip() for word in (match[1] or "").split(",") if word.strip())
        elif rules is not None:
            ignored[number] = rules
            rules = rules if line.rstrip().endswith("\\") else None
    return ignored


def _is_ignored(finding: LintFinding, ignored: dict[int, tuple[str, ...]]) -> bool:
    rules = ignored.get(finding.place.line)
    return rules is not None and (not rules or finding.rule in rules)
