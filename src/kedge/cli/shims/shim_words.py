# SPDX-License-Identifier: BSD-3-Clause
"""What `apptainer ...` and `singularity ...` mean in kedge's words, when kedge has taken their names.

The four verbs that start containers go straight on, as in `entry`; the others are translated by `shim_verbs`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.image_argument import is_reference
from kedge.base.nearest import propose
from kedge.base.release import VERSION
from kedge.base.words_of_other_tools import VERB_HABITS
from kedge.cli.entry import CONTAINER_VERBS, end_on_interrupt
from kedge.container.options import list_switches
from kedge.errors import FileProblem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The release whose command line is spoken. As a version with build metadata it is honest, and whoever takes the last
# word of `apptainer --version` for the version can compare it.
SPOKEN = f"1.4.5+kedge.{VERSION}"

_GLOBALS = {
    **{"-d": "--debug", "--debug": "--debug", "-q": "--quiet", "--quiet": "--quiet", "-s": "--silent"},
    **{"--silent": "--silent", "-v": "--verbose", "--verbose": "--verbose", "--nocolor": "--nocolor"},
}
# Job scripts name files of the directory that they start in: `singularity run image.sif python train.py`.
# Apptainer judges no image: a script that lives with one that does not fit is warned, and goes on.
_CHANGED = {"run": ("--no-workdir", "--force")}
_SAME = ("--force",)


class _Translation:
    """Kedge's words for a command line, or the text that answers it."""

    def __init__(
        self, words: Sequence[str] = (), *, text: str = "", status: int = 0, warnings: Sequence[str] = ()
    ) -> None:
        self.words = list(words)
        self.text = text
        self.status = status
        self.warnings = list(warnings)


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Do what the words say to a program of this name; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        end_on_interrupt()
    try:
        meant = translate(program, words)
    except BaseException as problem:
        from kedge.cli.container import report  # late, both: only a mistake needs them
        from kedge.container.options import RunOptions

        return report(problem, [program, *words], RunOptions(shim=True))
    if meant.text:
        return _answer(meant)
    from kedge.cli.entry import main as run_kedge  # late: answers need none of it

    verb = next((word for word in meant.words if not word.startswith("-")), "")
    if verb not in CONTAINER_VERBS:
        _load_site()
    if meant.warnings and "--silent" not in meant.words:
        from kedge.cli.container import begin_message, write_message  # late: hardly anybody is warned

        for text in meant.warnings:
            write_message(begin_message("warn", is_shim=True) + text)
    status = run_kedge(["--shim", *meant.words])
    return status if verb in CONTAINER_VERBS else _speak_status(status)


def _speak_status(status: int) -> int:
    """The status of a verb as Apptainer's callers know it: 255 for whatever failed, 1 for words it cannot read."""
    return {0: 0, 2: 1}.get(status, 255 if status < 128 else status)


def _answer(meant: _Translation) -> int:
    """Print the text that is the answer; that nobody reads it is said as by every other verb."""
    from kedge.cli.container import print_text  # late: containers need none of it

    return print_text(meant.text) or meant.status


def translate(program: str, words: Sequence[str]) -> _Translation:
    """Translate Apptainer's words to kedge's; raises an error that explains what has no equivalent."""
    if program == "run-singularity":
        return _Translation(["run", *_CHANGED["run"], *words])
    leading: list[str] = []
    warnings: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word in ("--version", "-h", "--help"):
            return _Translation(text=f"apptainer version {SPOKEN}\n") if word == "--version" else _explain(program, [])
        if word in ("-c", "--config") or word.startswith("--config="):
            position += word in ("-c", "--config")
            warnings.append(
                f"{word.partition('=')[0]}: kedge does not read Apptainer's configuration; see kedge config"
            )
        elif word != "--build-config":
            leading += _read_globals(program, word)
    verb, rest = "".join(words[position : position + 1]), list(words[position + 1 :])
    if verb in CONTAINER_VERBS:
        return _Translation([*leading, verb, *_CHANGED.get(verb, _SAME), *rest], warnings=warnings)
    if verb in ("", "help"):
        return _explain(program, rest, is_wanted=bool(verb))
    if verb == "version":
        return _Translation(text=f"{SPOKEN}\n")
    if verb in ("buildcfg", "plugin"):
        return _Translation(text=answer(program, verb, rest))

    return _Translation([*leading, *translate_verb(program, verb, rest)], warnings=warnings)


def _read_globals(program: str, word: str) -> list[str]:
    """`-d`, `--debug` or a cluster such as `-dv`."""
    if word in _GLOBALS:
        return [_GLOBALS[word]]
    letters = [f"-{letter}" for letter in word[1:]]
    if word.startswith("--") or not all(letter in _GLOBALS for letter in letters):
        from kedge.errors import UsageError  # late: only for an error

        raise UsageError(
            f"'{program}' has no option {word}", hint=f"write options of a verb after it: {program} exec {word} ..."
        )
    return [_GLOBALS[letter] for letter in letters]


def _explain(program: str, rest: list[str], *, is_wanted: bool = True) -> _Translation:
    if rest:
        return _Translation(["help", *rest])
    return _Translation(
        status=0 if is_wanted else 1,
        text=f"usage: {program} [global options] VERB ...\n\n"
        f"This {program} is kedge {VERSION}, which accepts Apptainer's command line.\n"
        "exec run shell test instance pull push build inspect run-help search delete cache sif sign verify key\n"
        "keyserver overlay registry remote buildcfg version. More verbs: kedge --help.\n"
        "To remove this command: kedge shim remove\n",
    )


def _load_site() -> None:
    """Let the libraries of the installation be found, which a start of a container does without."""
    if sys.flags.no_site:
        import site  # late: as said

        site.main()


# Questions to `apptainer` that a text answers: where things are, and which plugins there are.

_ANSWERS = ("buildcfg", "plugin")


def answer(program: str, verb: str, words: list[str]) -> str:
    """Return what another program's command prints; raises an error where kedge has no answer."""
    if verb == "buildcfg":
        return _show_build(program, words)
    if words[:1] == ["list"]:
        return "There are no plugins installed.\n"
    raise UsageError(f"kedge does not support '{program} plugin'", hint="kedge has no plugins")


def _show_build(program: str, words: list[str]) -> str:
    known = _list_build()
    if not words:
        return "".join(f"{name}={value}\n" for name, value in known.items())
    if words[0] not in known:
        raise UsageError(f'no variable named "{words[0]}"', hint=f"to list them: {program} buildcfg")
    return f"{known[words[0]]}\n"


def _list_build() -> dict[str, str]:
    """What scripts ask Apptainer's build for, as it is with kedge; what kedge has no such place for is left out."""
    return {
        "PACKAGE_NAME": "kedge",
        "PACKAGE_VERSION": VERSION,
        "PREFIX": sys.prefix,
        "BINDIR": os.path.dirname(sys.argv[0]) or f"{sys.prefix}/bin",  # noqa: PTH120 - a start has no pathlib
        "SYSCONFDIR": "/etc",
        "APPTAINER_CONFDIR": "/etc/apptainer",
        "SESSIONDIR": f"/var/tmp/kedge-{os.getuid()}/session",
        "APPTAINER_SUID_INSTALL": "0",
    }


# The verbs of Apptainer that start no container, in kedge's words: what is passed on, renamed, left out or refused.


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
