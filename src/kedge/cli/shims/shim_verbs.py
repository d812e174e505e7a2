# SPDX-License-Identifier: BSD-3-Clause
"""The verbs of Apptainer that start no container, in kedge's words: what is passed on, renamed, left out or refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.image_argument import is_reference
from kedge.base.nearest import propose
from kedge.base.words_of_other_tools import VERB_HABITS
from kedge.container.options import list_switches
from kedge.errors import FileProblem, UsageError


@dataclass(frozen=True, slots=True)
class _ShimRule:
    """What happens to the options of a verb; what is not named here is passed on as it is."""

    renamed: dict[str, str] = field(default_factory=dict)
    idle: tuple[str, ...] = ()  # without meaning for kedge
    idle_values: tuple[str, ...] = ()  # the same, with a value
    refused: dict[str, str] = field(default_factory=dict)  # and what to do instead


_DOCKER_HOST = {"--docker-host": "set the variable DOCKER_HOST, which the docker program reads"}
_VARIANT = {"--arch-variant": "write it after the architecture: --arch arm/v7"}
_KEYSERVER_FILE = {
    "-c": "key servers are a setting of kedge: kedge config get keyserver",
    "--config": "key servers are a setting of kedge: kedge config get keyserver",
}
_REMOTE_FILE = {
    "-c": "kedge reads the logins of Apptainer and Docker; to list them: kedge registry list",
    "--config": "kedge reads the logins of Apptainer and Docker; to list them: kedge registry list",
}

RULES = {
    "pull": _ShimRule(idle=("--no-cleanup",), refused={**_DOCKER_HOST, **_VARIANT}),
    "push": _ShimRule(
        idle=("-U", "--allow-unsigned"),
        idle_values=("-D", "--description"),
        refused={
            **_DOCKER_HOST,
            "--library": "name the library in the reference: library://HOST/ENTITY/COLLECTION/NAME",
        },
    ),
    "inspect": _ShimRule(),
    "sif": _ShimRule(),
    "sign": _ShimRule(),
    "verify": _ShimRule(),
    "key": _ShimRule(refused={"--new-password": "change the passphrase first: gpg --change-passphrase KEY"}),
    "overlay": _ShimRule(),
    "instance": _ShimRule(),
    "registry": _ShimRule(refused=_REMOTE_FILE),
    "remote": _ShimRule(),
    "keyserver": _ShimRule(refused=_KEYSERVER_FILE),
    "delete": _ShimRule(),
    "search": _ShimRule(),
    "cache": _ShimRule(renamed={"-n": "--dry-run"}, idle=("-a", "--all")),
    "build": _ShimRule(),
    "run-help": _ShimRule(),
}

# Verbs of Apptainer that kedge does not have, and what stands in their place; `kedge VERB` says the same
_MISSING = {
    **{verb: VERB_HABITS[verb] for verb in ("buildcfg", "capability", "checkpoint", "oci", "plugin")},
    "completion": "to print kedge's completion script: kedge completion SHELL",
    "config": "to list kedge's settings: kedge config show",
    "config fakeroot": "to check --fakeroot and get the line for administrators: kedge config fakeroot USER",
    "keyserver login": "kedge sends no credentials to key servers",
    "keyserver logout": "kedge stores no credentials of key servers",
    "remote get-login-password": "log in to the registry itself: kedge registry login HOST",
}

# options of `build` without meaning for kedge: steps always appear to run as root, and nothing is left behind
_BUILD_NEEDLESS = (
    *("-f", "--fakeroot", "--userns", "--ignore-fakeroot-command", "--ignore-userns", "--ignore-proot"),
    *("--no-setgroups", "--no-cleanup", "--writable-tmpfs", "-j", "--json"),
)
# options that say how a definition is built: for an image that is there they mean nothing, too
_BUILD_IDLE = (
    *(*_BUILD_NEEDLESS, "-T", "--notest", "--ignore-subuid", "--warn-unused-build-args"),
    *(f"--{switch.name}" for switch in list_switches()),
)
_BUILD_IDLE_VALUES = ("-B", "--bind", "--mount", "--build-arg", "--build-arg-file", "--section")
_BUILD_REFUSED = {
    **_DOCKER_HOST,
    **_VARIANT,
    "-e": "kedge cannot write encrypted images",
    "--encrypt": "kedge cannot write encrypted images",
    "--passphrase": "kedge cannot write encrypted images",
    "--pem-path": "kedge cannot write encrypted images",
    "--mksquashfs-args": "kedge does not use mksquashfs; choose a compression: kedge build --compress gzip ...",
    "-r": "kedge has no remote builder",
    "--remote": "kedge has no remote builder",
}
_NO_UPDATE = "an image is not written over a sandbox: --update runs the sections of a definition file in one"
_UPDATE_REFUSED = {"-u": _NO_UPDATE, "--update": _NO_UPDATE}  # for an image that is there
_BUILD_VALUES = ("--arch", "--authfile", "--tmpdir", "--library", *_BUILD_IDLE_VALUES)


def translate_verb(program: str, verb: str, words: list[str]) -> list[str]:
    """Kedge's words for `apptainer VERB WORDS`."""
    family, dot, command = verb.partition(".")
    if dot and family == "instance":  # as Singularity 2 wrote it
        verb, words = family, [command, *words]
    for missing in (f"{verb} {''.join(words[:1])}", verb):
        if missing in _MISSING:
            raise UsageError(f"kedge does not support '{program} {missing}'", hint=_MISSING[missing])
    rule = RULES.get(verb)
    if rule is None:
        known = [*RULES, "exec", "run", "shell", "test", "version"]
        raise UsageError(
            f"'{program}' has no verb '{verb}'", hint=propose(verb, known) or f"to list the verbs: {program} --help"
        )
    words = _apply_rule(f"{program} {verb}", rule, words)
    special = {
        **{"pull": _pull, "cache": _cache, "remote": _remote, "build": _build, "instance": _start_instance},
        "search": _search,
    }
    return special[verb](words) if verb in special else [verb, *words]


def _start_instance(words: list[str]) -> list[str]:
    """Start an instance; as with the verbs of containers, an image that does not fit the GPUs is warned of."""
    return ["instance", *words[:1], *(["--force"] if words[:1] in (["start"], ["run"]) else []), *words[1:]]


def _apply_rule(shown: str, rule: _ShimRule, words: list[str]) -> list[str]:
    """The words, with the options that the rule names treated so."""
    kept: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, equals, _ = word.partition("=")
        if name in rule.refused:
            raise UsageError(f"'{shown} {name}' is not supported", hint=rule.refused[name])
        if name in rule.idle_values:
            position += not equals
        elif name not in rule.idle:
            kept.append(rule.renamed.get(word, word))
    return kept


def _pull(words: list[str]) -> list[str]:
    """Apptainer makes a SIF whatever the output is called, and calls it so whatever the architecture is."""
    if {"-h", "--help"} & set(words):
        return ["pull", *words]
    form = [] if "--sandbox" in words else ["--format", "sif"]
    name = ["--plain-name"] if any(word.startswith("--arch") for word in words) else []
    return ["pull", *form, *name, "--last-wins", *words]


def _cache(words: list[str]) -> list[str]:
    """The kinds are called otherwise: everything but a blob is an image."""
    changed: list[str] = []
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--type" and equals:
            changed.append(f"--type={_name_kind(value)}")
        elif index and words[index - 1] in ("-T", "--type"):
            changed.append(_name_kind(word))
        else:
            changed.append(word)
    return ["cache", *changed]


def _name_kind(text: str) -> str:
    kinds = {
        "blob" if kind.strip() == "blob" else "all" if kind.strip() == "all" else "image" for kind in text.split(",")
    }
    return kinds.pop() if len(kinds) == 1 else "all"


def _remote(words: list[str]) -> list[str]:
    """Remotes are as Apptainer's; logins to registries and lists of key servers stood here in old releases."""
    position = next((at for at, word in enumerate(words) if word[:1] != "-" and words[at - 1 : at] != ["-c"]), None)
    if position is None:
        return ["remote", *words]
    before, command, rest = words[:position], words[position], words[position + 1 :]
    if command in ("add-keyserver", "remove-keyserver"):
        return ["keyserver", command.partition("-")[0], *before, *_leave_remote_out(rest)]
    if command in ("login", "logout") and _names_registry(rest):
        rule = _ShimRule(
            renamed={"-i": "--no-https", "--insecure": "--no-https"},
            refused={**_REMOTE_FILE, "--tokenfile": "read the password from the file: --password-stdin < FILE"},
        )
        return ["registry", command, *_apply_rule("apptainer remote", rule, [*before, *rest])]
    return ["remote", command, *before, *rest]


def _names_registry(words: list[str]) -> bool:
    """Whether a login is to a registry: it names a host, or a user; remotes have plain names, and tokens."""
    name = words[-1] if words and not words[-1].startswith("-") else ""
    return any(mark in name for mark in (".", ":", "/")) or bool({"-u", "--username"} & set(words))


def _leave_remote_out(words: list[str]) -> list[str]:
    """`[options] [REMOTE] URL` without the remote: kedge has one list of key servers."""
    names = [index for index, word in enumerate(words) if word[:1] != "-" and words[index - 1 : index] != ["-o"]]
    return [word for index, word in enumerate(words) if index not in names[:-1]]


def _search(words: list[str]) -> list[str]:
    """Apptainer searches its library; `kedge search` itself looks on NGC and Docker Hub."""
    return ["search", "--in-library", *words]


def _build(words: list[str]) -> list[str]:
    """A definition is built; an image that is there, here or in a registry, becomes a SIF or a directory."""
    if {"-h", "--help"} & set(words):
        return ["build", "--help"]
    words = _split_letters(words)
    names = _list_names(words)
    if len(names) != 2:
        raise UsageError(
            "'build' needs an output file and a definition file or image",
            hint="build OUTPUT.sif FILE.def, or build OUTPUT.sif docker://NAME",
        )
    output, spec = names
    form = ["--format", "sandbox" if {"-s", "--sandbox"} & set(words) else "sif"]
    is_there = is_reference(spec) or _is_image(Path(spec))
    rule = (
        _ShimRule(idle=_BUILD_IDLE, idle_values=_BUILD_IDLE_VALUES, refused={**_BUILD_REFUSED, **_UPDATE_REFUSED})
        if is_there
        else _ShimRule(idle=_BUILD_NEEDLESS, refused=_BUILD_REFUSED)
    )
    words = _apply_rule("build", rule, words)
    options = _drop_names([word for word in words if word not in ("-s", "--sandbox")])
    if not is_there:
        return ["build", *form, *options, output, spec]
    if is_reference(spec):
        return ["pull", *form, *options, output, spec]
    return ["convert", *form, *_keep_for_convert(options), spec, output]


def _list_names(words: list[str]) -> list[str]:
    """The words of `build` that are neither options nor their values."""
    return [
        word
        for index, word in enumerate(words)
        if not word.startswith("-") and words[index - 1 : index] not in [[option] for option in _BUILD_VALUES]
    ]


def _drop_names(words: list[str]) -> list[str]:
    """The options of `build` with their values."""
    return [
        word
        for index, word in enumerate(words)
        if word.startswith("-") or words[index - 1 : index] in [[option] for option in _BUILD_VALUES]
    ]


def _split_letters(words: list[str]) -> list[str]:
    """`-sF` as `-s -F`, because each letter has a fate of its own; `-B` takes the rest of its word."""
    split: list[str] = []
    for word in words:
        if word.startswith("-B"):
            split += ["-B", *([word[2:]] if word[2:] else [])]
        elif word.startswith("-") and not word.startswith("--"):
            split += [f"-{letter}" for letter in word[1:]]
        else:
            split.append(word)
    return split


def _keep_for_convert(options: list[str]) -> list[str]:
    """The options that mean something without a registry."""
    kept: list[str] = []
    for index, word in enumerate(options):
        name = word.partition("=")[0]
        if name in ("-F", "--force", "--fix-perms", "--arch", "--tmpdir") or (
            index and options[index - 1] in ("--arch", "--tmpdir")
        ):
            kept.append(word)
    return kept


def _is_image(path: Path) -> bool:
    """Whether a path is an image: a definition can only be told by being nothing else."""
    if path.is_dir() or (path.exists() and not path.is_file()):  # a pipe is read once, by the build
        return path.is_dir()
    try:
        with path.open("rb") as file:
            head = file.read(2048)
    except OSError as problem:
        raise FileProblem(f"{path}: {problem.strerror}", hint="build OUTPUT.sif FILE.def") from None
    return head[32:41] == b"SIF_MAGIC" or head[:4] == b"hsqs" or head[1080:1082] == b"\x53\xef" or b"hsqs" in head[:256]
