# SPDX-License-Identifier: BSD-3-Clause
"""What `docker ...` means in kedge's words, when kedge has taken that name: build, pull, push, run, images, a few more.

What kedge cannot do it says, with its own way. `docker run` and its kind are in `docker_run`, other verbs in
`docker_verbs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kedge.base.nearest import propose
from kedge.base.release import VERSION
from kedge.base.words_of_other_tools import CONTAINER_HABITS, VERB_HABITS
from kedge.cli.shims.shim_meaning import DOCKER_SPOKEN, Meaning, run_shim
from kedge.errors import UsageError
from kedge.system.files import explained

_IDLE_VALUES = (
    "-H",
    "--host",
    "-c",
    "--context",
    "--config",
    "-l",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
)
_IDLE = ("--tls", "--tlsverify")
# `docker image pull` is `docker pull`; the family alone names no command
_FAMILIES = {
    "image": {"build", "pull", "push", "ls", "list", "inspect", "tag", "rm", "save", "load", "history", "prune"},
    "container": {"run", "exec", "ls", "list", "ps", "logs", "stop", "kill", "rm", "stats", "inspect"},
    "buildx": {"build", "version"},
    "builder": {"build", "prune"},
    "system": {"info"},
}
_RENAMED = {("image", "ls"): "images", ("image", "list"): "images", ("image", "rm"): "rmi", ("container", "ls"): "ps"}
_RENAMED |= {("container", "list"): "ps"}


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Do what the words say to docker; the exit status is as Docker's: 125 for a container that kedge cannot start."""
    return run_shim(program, argv, lambda words: translate(program, words, os.environ), own_failure=125)


def translate(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Meaning:
    """Translate a docker command to kedge's words; raises an error that names kedge's own way where there is none."""
    leading: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        if word in ("-v", "--version"):
            return Meaning(text=f"Docker version {DOCKER_SPOKEN}, build kedge\n")
        if word in ("-h", "--help"):
            return Meaning(text=_explain(program))
        if word in ("-D", "--debug"):
            leading.append("--debug")
        elif word in _IDLE_VALUES:
            position += 1
        elif word.partition("=")[0] not in (*_IDLE_VALUES, *_IDLE):
            from kedge.errors import UsageError  # late: only for an error

            raise UsageError(f"'{program}' has no option {word}", hint=f"to list the verbs: {program} --help")
    verb, rest = "".join(words[position : position + 1]), list(words[position + 1 :])
    if verb in ("", "help"):
        return Meaning(["help", *rest]) if rest else Meaning(text=_explain(program))
    if verb in _FAMILIES and rest and rest[0] in _FAMILIES[verb]:
        verb, rest = _RENAMED.get((verb, rest[0]), rest[0]), rest[1:]
    if verb in ("run", "exec", "create"):
        meant = translate_run(program, verb, rest, environ)
    else:
        meant = translate_verb(program, verb, rest)
    meant.words = [*leading, *meant.words] if meant.words else []
    return meant


def _explain(program: str) -> str:
    return (
        f"usage: {program} VERB ...\n\n"
        f"This {program} is kedge {VERSION}, which accepts a part of Docker's command line. There is no daemon.\n"
        "build pull push run exec images tag login logout inspect ps logs stop save search info version.\n"
        "More verbs: kedge --help. To remove this command: kedge shim remove docker\n"
    )


# `docker run` and `docker exec` in kedge's words: a container as Docker's users expect it, without a daemon.
#
# Nothing of the host is inside but what -v names; the root can be written, and changes are lost at the end; the user is
# root. The host's network is used.

_RUN_IDLE = (
    *("--rm", "-i", "--interactive", "-t", "--tty", "--init", "--privileged", "--no-healthcheck", "-q", "--quiet"),
    *("--oom-kill-disable", "--sig-proxy", "--disable-content-trust"),
)
_RUN_IDLE_VALUES = (
    *("--name", "--shm-size", "--ulimit", "--restart", "--security-opt", "--cap-add", "--cap-drop", "-l", "--label"),
    *("--log-driver", "--log-opt", "--stop-signal", "--stop-timeout", "--add-host", "--cidfile", "--label-file"),
    *("--runtime", "--userns", "--cgroupns", "--cgroup-parent", "--device-cgroup-rule", "--detach-keys", "--group-add"),
    *(
        "--health-cmd",
        "--health-interval",
        "--health-retries",
        "--health-timeout",
        "--isolation",
        "--memory-swappiness",
    ),
    *("--mac-address", "--ip", "--oom-score-adj", "--sysctl", "--storage-opt", "--uts", "--expose", "--link", "--dns"),
)
_PASSED_VALUES = {
    **{"-w": "--pwd", "--workdir": "--pwd", "-h": "--hostname", "--hostname": "--hostname", "--mount": "--mount"},
    **{"-m": "--memory", "--memory": "--memory", "--cpus": "--cpus", "--pids-limit": "--pids-limit"},
    **{"--cpuset-cpus": "--cpuset-cpus", "--cpuset-mems": "--cpuset-mems", "-c": "--cpu-shares"},
    **{"--cpu-shares": "--cpu-shares", "--memory-swap": "--memory-swap"},
    **{"--tmpfs": "--scratch", "--platform": "--arch", "--pull": "--pull"},
}
_READ_VALUES = (
    *(
        "-v",
        "--volume",
        "-e",
        "--env",
        "--gpus",
        "-u",
        "--user",
        "--entrypoint",
        "-p",
        "--publish",
        "--network",
        "--net",
    ),
    *("--ipc", "--pid", "--device", "--env-file"),
)
_READ = ("-d", "--detach", "-P", "--publish-all", "--read-only")
_LETTERS = "itdqP"  # short options without a value, which may stand together
_PORTS = "-p is ignored: containers use the host's network, so every port is open already"


@dataclass(slots=True)
class _Run:
    """The options of one `docker run`, as far as they were read."""

    program: str
    environ: Mapping[str, str]
    words: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    entrypoint: str | None = None
    is_root: bool = True
    is_written: bool = True
    shares: set[str] = field(default_factory=set)  # namespaces of the host that stay: ipc, pid

    def take(self, name: str, value: str) -> None:
        """Take one option that has a value."""
        takers = {
            **dict.fromkeys(("-v", "--volume"), self._take_volume),
            **dict.fromkeys(("-e", "--env"), self._set_variable),
            "--env-file": self._take_file,
            "--gpus": self._take_gpus,
            "--device": self._take_device,
        }
        if name in _PASSED_VALUES:
            self.words += [_PASSED_VALUES[name], value.partition(":")[0] if name == "--tmpfs" else value]
        elif name in takers:
            takers[name](value)
        elif name in ("-p", "--publish"):
            self.warnings = [*(text for text in self.warnings if text != _PORTS), _PORTS]
        else:
            self._take_place(name, value)

    def _take_place(self, name: str, value: str) -> None:
        """Take an option that says as whom, what and in which namespaces to run."""
        if name in ("-u", "--user"):
            self.is_root = value.partition(":")[0] in ("0", "root")
        elif name == "--entrypoint":
            self.entrypoint = value
        elif name in ("--network", "--net") and value == "none":
            self.words += ["--net", "--network", "none"]
        elif name in ("--ipc", "--pid") and value == "host":
            self.shares.add(name[2:])

    def switch(self, name: str) -> None:
        """Take one option without a value."""
        if name in ("-d", "--detach"):
            raise UsageError(
                f"'{self.program} run -d' needs a daemon, which kedge has not",
                hint="to start a container in the background: kedge instance run docker://IMAGE NAME",
            )
        if name == "--read-only":
            self.is_written = False
        elif name in ("-P", "--publish-all"):
            self.take("-p", "")

    def _take_volume(self, value: str) -> None:
        source = value.partition(":")[0]
        if not source.startswith(("/", "./", "../", "~")) and source not in (".", ".."):
            raise UsageError(f"kedge has no volume '{source}'", hint="name a directory: -v /path/on/host:/path/inside")
        if ":" not in value:
            raise UsageError(
                f"kedge has no anonymous volumes: -v {value}", hint=f"for an empty directory: --tmpfs {value}"
            )
        _, inside, *options = value.split(":", 2)
        kept = [option for option in "".join(options).split(",") if option in ("ro", "rw")]
        folder = Path.cwd() / Path(source).expanduser()
        self.words += ["--bind", ":".join([str(folder), inside, *kept])]

    def _take_file(self, value: str) -> None:
        """Docker's files have no quotes and no shell: a line is a name and all that follows."""
        with explained(value):
            text = Path(value).read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                self._set_variable(line.lstrip())

    def _set_variable(self, value: str) -> None:
        """Set variables by kedge's own: a value may have commas, which --env takes for the next name."""
        name, equals, text = value.partition("=")
        if equals or name in self.environ:
            self.variables[f"KEDGEENV_{name}"] = text if equals else self.environ[name]

    def _take_gpus(self, value: str) -> None:
        """`all`, `2`, `device=0,1`, `"device=0,1"`."""
        text = value.strip("\"'")
        self.words.append("--nv")
        if text.startswith("device="):
            self._set_variable(f"CUDA_VISIBLE_DEVICES={text.partition('=')[2]}")
        elif text.isdigit():
            self._set_variable(f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(int(text))))}")

    def _take_device(self, value: str) -> None:
        if "=" in value:  # CDI: vendor.com/class=name
            self.words += ["--device", value]
        else:
            self.words += ["--bind", value.partition(":")[0]]


def translate_run(program: str, verb: str, words: list[str], environ: Mapping[str, str]) -> Meaning:
    """Kedge's words for `docker run` or `docker exec`."""
    if {"-h", "--help"} & set(words[:1]):
        return Meaning(["exec" if verb == "exec" else "run", "--help"])
    if verb == "create":
        raise UsageError(
            f"'{program} create' needs a daemon, which kedge has not",
            hint=f"to run a command: {program} run IMAGE COMMAND",
        )
    run = _Run(program, environ)
    rest = _read_options(run, verb, words)
    if not rest:
        raise UsageError(f"'{program} {verb}' needs an image", hint=f"{program} {verb} IMAGE COMMAND")
    if verb == "exec":
        return Meaning(["exec", *run.words, f"instance://{rest[0]}", *rest[1:]], environ=run.variables)
    image, *command = rest
    container = ["--contain", *(f"--{name}" for name in ("ipc", "pid") if name not in run.shares), "--cleanenv"]
    container += ["--no-umask", "--no-eval", *(["--writable-tmpfs"] if run.is_written else [])]
    container += ["--fakeroot"] if run.is_root else []
    options = [*container, *run.words]
    reference = image if "://" in image else f"docker://{image}"
    if run.entrypoint is not None:
        inside = ([run.entrypoint] if run.entrypoint else []) + command
        return Meaning(["exec", *options, reference, *inside], environ=run.variables, warnings=run.warnings)
    return Meaning(["run", *options, reference, *command], environ=run.variables, warnings=run.warnings)


def _read_options(run: _Run, verb: str, words: list[str]) -> list[str]:
    """Read the options before the image; what is left begins with it."""
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        name, equals, value = words[position].partition("=")
        position += 1
        if name == "--":
            break
        if not name.startswith("--") and len(name) > 2:  # -it, -w/dir, -eA=1
            name, equals, value = _split_letters(run, words[position - 1])
        if name in _RUN_IDLE or name == "":
            continue
        if name in _READ:
            run.switch(name)
        elif name in _PASSED_VALUES or name in _READ_VALUES or name in _RUN_IDLE_VALUES:
            if not equals:
                value = "".join(words[position : position + 1])
                position += 1
            run.take(name, value)
        else:
            _refuse(run.program, verb, name)
    return words[position:]


def _split_letters(run: _Run, word: str) -> tuple[str, str, str]:
    """The option with a value in a word of letters, after those without; an empty name where there is none."""
    for index, letter in enumerate(word[1:], 1):
        if letter not in _LETTERS:
            value = word[index + 1 :].removeprefix("=")
            return f"-{letter}", value, value
        if letter in "dP":
            run.switch(f"-{letter}")
    return "", "", ""


def _refuse(program: str, verb: str, name: str) -> None:
    known = [*_RUN_IDLE, *_RUN_IDLE_VALUES, *_PASSED_VALUES, *_READ_VALUES, *_READ]
    hint = CONTAINER_HABITS.get(name) or propose(name, known) or "to list kedge's options: kedge run --help-all"
    raise UsageError(f"'{program} {verb} {name}' is not supported", hint=hint)


# The verbs of Docker that start no container, in kedge's words: what is passed on, left out or refused.

_BUILD_IDLE = (
    *(
        "--rm",
        "--force-rm",
        "--load",
        "--no-cache-filter",
        "--squash",
        "--disable-content-trust",
        "--compress",
        "--call",
    ),
    *("--sbom", "--debug", "-D"),
)
_BUILD_IDLE_VALUES = (
    *("--cache-from", "--cache-to", "--builder", "--attest", "--provenance", "--memory", "-m", "--memory-swap"),
    *("--cpu-period", "--cpu-quota", "-c", "--cpu-shares", "--cpuset-cpus", "--cpuset-mems", "--shm-size", "--ulimit"),
    *("--security-opt", "--isolation", "--cgroup-parent", "--add-host", "--allow", "--annotation"),
)
_NO_DAEMON = "kedge has no daemon"
_MISSING = {
    "prune": "to remove unused items from the cache: kedge cache clean",
    "rm": "kedge keeps nothing of a container; to stop an instance: kedge instance stop NAME",
    "commit": "to make an image of an overlay: kedge commit OVERLAY OUTPUT",
    "cp": VERB_HABITS["cp"],
    "load": "to run an archive: kedge run docker-archive:FILE.tar",
    "import": "to run an archive: kedge run docker-archive:FILE.tar",
    "history": "to see what holds the bytes of an image: kedge image size docker://IMAGE",
    "compose": VERB_HABITS["compose"],
    "start": VERB_HABITS["start"],
    "restart": VERB_HABITS["start"],
    "attach": VERB_HABITS["attach"],
    "volume": VERB_HABITS["volume"],
    "network": VERB_HABITS["network"],
    **dict.fromkeys(("swarm", "service", "stack", "node", "secret", "plugin", "context", "events"), _NO_DAEMON),
    **dict.fromkeys(("pause", "unpause", "rename", "update", "wait", "port", "diff", "manifest", "trust"), _NO_DAEMON),
}


def translate_verb(program: str, verb: str, words: list[str]) -> Meaning:
    """Kedge's words for `docker VERB WORDS`."""
    known: dict[str, Callable[[list[str]], Meaning]] = {
        **{
            "build": _build,
            "pull": _pull,
            "push": _push,
            "images": _images,
            "tag": _tag,
            "inspect": _inspect,
            "rmi": _rmi,
        },
        **{"login": _login, "logout": _logout, "ps": _ps, "logs": _logs, "stop": _stop, "kill": _stop, "save": _save},
        **{"search": _search, "version": _version, "info": _info, "stats": _stats, "top": _stats},
    }
    if verb in known:
        return known[verb](words)
    if verb in _MISSING:
        raise UsageError(f"kedge does not support '{program} {verb}'", hint=_MISSING[verb])
    hint = propose(verb, [*known, "run", "exec"]) or f"to list the verbs: {program} --help"
    raise UsageError(f"'{program}' has no verb '{verb}'", hint=hint)


def _build(words: list[str]) -> Meaning:
    """Translate `docker build` to `kedge build`; what steers a daemon's builder means nothing."""
    kept: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, equals, value = word.partition("=")
        position += 1
        if name in _BUILD_IDLE_VALUES:
            position += not equals
        elif name == "--network":
            value = value if equals else "".join(words[position : position + 1])
            position += not equals
            if value == "none":
                raise UsageError("steps use the host's network", hint="for one step without: RUN --network=none")
        elif name == "--pull" and value in ("true", "false"):
            kept += ["--pull"] if value == "true" else []
        elif name == "--progress" and (value == "rawjson" or words[position : position + 1] == ["rawjson"]):
            position += not equals
            kept.append("--progress=json")
        elif name not in _BUILD_IDLE:
            kept.append(word)
    return Meaning(["build", *kept])


def _pull(words: list[str]) -> Meaning:
    """Into the cache and onto this node, where `docker run` finds it; Docker writes no file either."""
    names, options = _split("pull", words, values={"--platform": "--arch"}, idle=("--disable-content-trust",))
    if "-a" in words or "--all-tags" in words:
        raise UsageError("kedge pulls one image at a time", hint="to list the tags: kedge tags NAME")
    return Meaning(["unpack", "--pull", "newer", *options, *map(_name_image, _require("pull", names, 1))])


def _push(words: list[str]) -> Meaning:
    names, options = _split("push", words, values={"--platform": ""}, idle=("--disable-content-trust",))
    (name,) = _require("push", names, 1)
    return Meaning(["push", *options, _name_image(name), _name_image(name)])


def _images(words: list[str]) -> Meaning:
    names, options = _split(
        "images",
        words,
        values={"-f": "", "--filter": "", "--format": ""},
        idle=("-a", "--all", "--digests", "--no-trunc"),
    )
    return Meaning(["image", "list", *options, *names])


def _rmi(words: list[str]) -> Meaning:
    names, _ = _split("rmi", words, idle=("-f", "--force", "--no-prune"))
    return Meaning(["image", "rm", *names])


def _tag(words: list[str]) -> Meaning:
    names, _ = _split("tag", words)
    return Meaning(["image", "tag", *_require("tag", names, 2)])


def _inspect(words: list[str]) -> Meaning:
    names, _ = _split("inspect", words, values={"-f": "", "--format": "", "--type": ""}, idle=("-s", "--size"))
    (name,) = _require("inspect", names, 1)
    return Meaning(["inspect", "--oci", _name_image(name)])


def _login(words: list[str]) -> Meaning:
    names, options = _split(
        "login",
        words,
        values={"-u": "--username", "--username": "--username", "-p": "--password", "--password": "--password"},
        passed=("--password-stdin",),
    )
    return Meaning(["registry", "login", *options, *(names or ["docker.io"])])


def _logout(words: list[str]) -> Meaning:
    names, _ = _split("logout", words)
    return Meaning(["registry", "logout", *(names or ["docker.io"])])


def _ps(words: list[str]) -> Meaning:
    _split(
        "ps",
        words,
        values={"-f": "", "--filter": "", "--format": "", "-n": "", "--last": ""},
        idle=("-a", "--all", "-l", "--latest", "--no-trunc", "-s", "--size", "-q", "--quiet"),
    )
    return Meaning(["instance", "list"])


def _logs(words: list[str]) -> Meaning:
    names, options = _split(
        "logs",
        words,
        values={"-n": "", "--tail": "", "--since": ""},
        idle=("-t", "--timestamps"),
        passed=("-f", "--follow"),
    )
    return Meaning(["instance", "logs", *options, *_require("logs", names, 1)])


def _stop(words: list[str]) -> Meaning:
    names, options = _split(
        "stop", words, values={"-t": "--timeout", "--time": "--timeout", "-s": "--signal", "--signal": "--signal"}
    )
    return Meaning(["instance", "stop", *options, *_require("stop", names, 1)])


def _stats(words: list[str]) -> Meaning:
    names, _ = _split("stats", words, idle=("-a", "--all", "--no-stream"))
    return Meaning(["instance", "stats", *_require("stats", names, 1)])


def _save(words: list[str]) -> Meaning:
    names, _ = _split("save", words, values={"-o": "", "--output": ""})
    output = next(
        (words[index + 1] for index, word in enumerate(words[:-1]) if word in ("-o", "--output")),
        next((word.partition("=")[2] for word in words if word.startswith("--output=")), ""),
    )
    if not output:
        raise UsageError("kedge writes no image to standard output", hint="name a file: docker save -o FILE.tar IMAGE")
    return Meaning(["pull", f"docker-archive:{output}", *map(_name_image, _require("save", names, 1))])


def _search(words: list[str]) -> Meaning:
    names, _ = _split("search", words, values={"--limit": "", "-f": "", "--filter": ""}, idle=("--no-trunc",))
    return Meaning(["search", *names])


def _version(words: list[str]) -> Meaning:
    if any(word.startswith(("-f", "--format")) for word in words):
        return Meaning(text=f"{DOCKER_SPOKEN}\n")
    return Meaning(text=f"Client:\n Version:    {DOCKER_SPOKEN}\n Program:    kedge {VERSION}, without a daemon\n")


def _info(words: list[str]) -> Meaning:
    del words
    return Meaning(
        text=f"Client:\n Version:    {DOCKER_SPOKEN}\n\nServer:\n none: kedge {VERSION} needs no daemon. "
        "To check this host: kedge doctor\n"
    )


def _name_image(name: str) -> str:
    return name if "://" in name else f"docker://{name}"


def _require(verb: str, names: Sequence[str], count: int) -> Sequence[str]:
    if len(names) < count:
        raise UsageError(f"'docker {verb}' needs {'an image' if count == 1 else 'two names'}", hint="docker --help")
    return names


def _split(
    verb: str,
    words: Sequence[str],
    *,
    values: dict[str, str] | None = None,
    idle: Sequence[str] = (),
    passed: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Names and options; an option with a value is passed on under the name it has here, and left out with none."""
    values = values or {}
    names: list[str] = []
    options: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, equals, value = word.partition("=")
        position += 1
        if name in values:
            if not equals:
                value = "".join(words[position : position + 1])
                position += 1
            options += [values[name], value] if values[name] else []
        elif name in passed or name in ("-q", "--quiet"):
            options.append(name)
        elif name.startswith("-") and name not in idle:
            hint = propose(name, [*values, *idle, *passed]) or f"to see kedge's options: kedge {verb} --help"
            raise UsageError(f"'docker {verb} {name}' is not supported", hint=hint)
        elif not name.startswith("-"):
            names.append(word)
    return names, options
