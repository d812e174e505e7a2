# SPDX-License-Identifier: BSD-3-Clause
"""The verbs of Docker that start no container, in kedge's words: what is passed on, left out or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kedge.base.nearest import propose
from kedge.base.release import VERSION
from kedge.base.words_of_other_tools import VERB_HABITS
from kedge.cli.shims.shim_meaning import DOCKER_SPOKEN, Meaning
from kedge.errors import UsageError

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
