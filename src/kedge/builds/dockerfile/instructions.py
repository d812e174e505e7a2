# SPDX-License-Identifier: BSD-3-Clause
"""Instructions with their meaning: what each takes is checked here, variables are still in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NoReturn

from kedge.base.frozen import frozen
from kedge.base.nearest import propose
from kedge.builds.dockerfile.mounts import check_mount, read_nanoseconds
from kedge.builds.dockerfile.syntax import DockerfileNode, Heredoc, parse_heredoc
from kedge.builds.dockerfile.words import INSTRUCTIONS
from kedge.builds.step_values import refuse_recipe

# The flags of instructions: which there are, and their values.


class FlagKind(Enum):
    """What a flag takes."""

    SWITCH = "true or false"
    TEXT = "a value"
    LIST = "a value, several times"


_NO_FLAGS = "it takes no flags; write -- before words that begin with --"
_TRUTH = {"true": True, "": True, "false": False}


class InstructionFlags:
    """The flags of one instruction."""

    def __init__(self, node: DockerfileNode, kinds: Mapping[str, FlagKind]) -> None:
        self._node = node
        self._kinds = kinds
        self._values: dict[str, list[str]] = {}
        for flag in node.flags:
            self._add(flag)

    def _add(self, flag: str) -> None:
        word, sign, value = flag.partition("=")
        name = word[2:]
        place = self._node.find(word)
        kind = self._kinds.get(name)
        if kind is None:
            known = [f"--{name}" for name in self._kinds]
            hint = propose(word, known) or (f"it takes {', '.join(known)}" if known else _NO_FLAGS)
            raise refuse_recipe(place, f"{self._node.keyword} has no flag {word}", hint)
        if name in self._values and kind is not FlagKind.LIST:
            raise refuse_recipe(place, f"{word} is given twice", "keep one of them")
        if (sign and not value and kind is FlagKind.SWITCH) or (not sign and kind is not FlagKind.SWITCH):
            raise refuse_recipe(place, f"{word} has no value", f"write {word}=VALUE")
        if kind is FlagKind.SWITCH and value.lower() not in _TRUTH:
            raise refuse_recipe(place, f"{word}={value} is neither true nor false", f"write {word} or {word}=false")
        self._values.setdefault(name, []).append(value)

    def text(self, name: str) -> str:
        """The value of a flag; empty if it is not given."""
        return self._values.get(name, [""])[0]

    def all(self, name: str) -> tuple[str, ...]:
        """The values of a flag that may be given several times."""
        return tuple(self._values.get(name, ()))

    def switch(self, name: str) -> bool | None:
        """Whether a switch is on; None if it is not given."""
        return _TRUTH[self._values[name][0].lower()] if name in self._values else None


_STAGE = re.compile(r"[a-z][a-z0-9-_.]*")
_ONBUILD = re.compile(r"[\t\n\f\r ]*onbuild[\t\n\f\r ]*", re.IGNORECASE)
_NO_BACKSLASH = "a command of several lines needs a backslash at the end of each line, except for the last"
_HEALTH_TIMES = ("interval", "timeout", "start-period", "start-interval")


@frozen
class FromInstruction:
    """The beginning of a stage."""

    node: DockerfileNode
    image: str
    name: str = ""  # in lower case
    platform: str = ""


@frozen
class RunInstruction:
    """A command; `words` is one text for the shell, or the arguments of the exec form."""

    node: DockerfileNode
    words: tuple[str, ...]
    mounts: tuple[str, ...] = ()
    network: str = "default"
    security: str = "sandbox"
    devices: tuple[str, ...] = ()


@frozen
class CopyInstruction:
    """COPY and ADD."""

    node: DockerfileNode
    flags: InstructionFlags
    sources: tuple[str, ...]
    inline: tuple[Heredoc, ...]
    destination: str
    origin: str = ""  # --from


@frozen
class PairsInstruction:
    """ENV and LABEL."""

    node: DockerfileNode
    pairs: tuple[tuple[str, str], ...]
    is_legacy: bool = False  # ENV name value


@frozen
class ArgInstruction:
    """ARG; a name without a value has None."""

    node: DockerfileNode
    arguments: tuple[tuple[str, str | None], ...]


@frozen
class HealthInstruction:
    """HEALTHCHECK, as the config of an image has it."""

    node: DockerfileNode
    check: dict[str, list[str] | int]


@frozen
class OnbuildInstruction:
    """ONBUILD: an instruction for those who build on the result."""

    node: DockerfileNode
    expression: str


@frozen
class WordsInstruction:
    """CMD, ENTRYPOINT, SHELL, EXPOSE, VOLUME, and those of one word: USER, WORKDIR, STOPSIGNAL, MAINTAINER."""

    node: DockerfileNode
    words: tuple[str, ...]


Instruction = (
    FromInstruction
    | RunInstruction
    | CopyInstruction
    | PairsInstruction
    | ArgInstruction
    | HealthInstruction
    | OnbuildInstruction
    | WordsInstruction
)


def read_instruction(node: DockerfileNode) -> Instruction:
    """The instruction of a node; raises InvalidRecipe with the place."""
    reader = _READERS.get(node.keyword)
    if reader is None:
        hint = propose(node.keyword, INSTRUCTIONS)
        raise refuse_recipe(node.place, f"unknown instruction '{node.name}'", hint or _NO_BACKSLASH)
    return reader(node)


def _refuse(node: DockerfileNode, message: str, hint: str | None = None, part: str = "") -> NoReturn:
    raise refuse_recipe(node.find(part), message, hint)


def _read_from(node: DockerfileNode) -> FromInstruction:
    words = node.words
    if not words:
        _refuse(node, "FROM names no image", "write FROM IMAGE, or FROM scratch for an empty one")
    if len(words) != 1 and not (len(words) == 3 and words[1].lower() == "as"):
        _refuse(node, "FROM takes an image, and AS with a name", "write FROM IMAGE, or FROM IMAGE AS NAME")
    name = words[-1].lower() if len(words) == 3 else ""
    if name and not _STAGE.fullmatch(name):
        hint = "begin with a letter; then letters, digits, '-', '_' and '.'"
        _refuse(node, f"'{words[-1]}' cannot be the name of a stage", hint, words[-1])
    flags = InstructionFlags(node, {"platform": FlagKind.TEXT})
    return FromInstruction(node, words[0], name, flags.text("platform"))


def _read_run(node: DockerfileNode) -> RunInstruction:
    kinds = {"network": FlagKind.TEXT, "security": FlagKind.TEXT, "mount": FlagKind.LIST, "device": FlagKind.LIST}
    flags = InstructionFlags(node, kinds)
    for mount in flags.all("mount"):
        check_mount(mount, node)
    network, security = flags.text("network"), flags.text("security")
    if "network" in _used(node) and network not in ("default", "none", "host"):
        _refuse(node, f"--network={network} is unknown", "use default, none or host", "--network")
    if "security" in _used(node) and security not in ("sandbox", "insecure"):
        _refuse(node, f"--security={security} is unknown", "use sandbox or insecure", "--security")
    return RunInstruction(
        node=node,
        words=_join(node),
        mounts=flags.all("mount"),
        network=network or "default",
        security=security or "sandbox",
        devices=flags.all("device"),
    )


def _used(node: DockerfileNode) -> set[str]:
    return {flag.partition("=")[0][2:] for flag in node.flags}


def _join(node: DockerfileNode) -> tuple[str, ...]:
    """The words of a command: one text unless they stand in an array."""
    return node.words if node.is_json or not node.words else (" ".join(node.words),)


def _read_copy(node: DockerfileNode) -> CopyInstruction:
    if len(node.words) < 2:
        hint = f"write {node.keyword} SOURCE... DESTINATION"
        _refuse(node, f"{node.keyword} needs a source and a destination", hint)
    texts = ("chown", "chmod", "from") if node.keyword == "COPY" else ("chown", "chmod", "checksum")
    switches = ("link", "parents") if node.keyword == "COPY" else ("link", "keep-git-dir", "unpack")
    kinds = dict.fromkeys(texts, FlagKind.TEXT) | dict.fromkeys(switches, FlagKind.SWITCH)
    flags = InstructionFlags(node, kinds | {"exclude": FlagKind.LIST})
    *sources, destination = node.words
    if parse_heredoc(destination):
        _refuse(node, "a heredoc cannot be the destination", "name a path behind it", destination)
    contents = {heredoc.name: heredoc for heredoc in node.heredocs}
    documents = [parse_heredoc(source) for source in sources]
    inline = tuple(contents.get(document.name, document) for document in documents if document)
    plain = tuple(source for source, document in zip(sources, documents, strict=True) if not document)
    return CopyInstruction(
        node=node, flags=flags, sources=plain, inline=inline, destination=destination, origin=flags.text("from")
    )


def _read_pairs(node: DockerfileNode) -> PairsInstruction:
    InstructionFlags(node, {})
    names, values, signs = node.words[0::3], node.words[1::3], node.words[2::3]
    if not names:
        _refuse(node, f"{node.keyword} sets nothing", f"write {node.keyword} NAME=VALUE")
    if not all(names):
        _refuse(node, f"{node.keyword} has a value without a name", f"write {node.keyword} NAME=VALUE")
    return PairsInstruction(node, tuple(zip(names, values, strict=True)), "" in signs)


def _read_arg(node: DockerfileNode) -> ArgInstruction:
    if not node.words:
        _refuse(node, "ARG names nothing", "write ARG NAME or ARG NAME=DEFAULT")
    arguments: list[tuple[str, str | None]] = []
    for word in node.words:
        name, sign, value = word.partition("=")
        if not name:
            _refuse(node, "ARG has a value without a name", "write ARG NAME=DEFAULT", word)
        arguments.append((name, value if sign else None))
    return ArgInstruction(node, tuple(arguments))


def _read_health(node: DockerfileNode) -> HealthInstruction:
    if not node.words:
        _refuse(node, "HEALTHCHECK checks nothing", "write HEALTHCHECK CMD COMMAND, or HEALTHCHECK NONE")
    kind, *command = node.words
    if kind.upper() == "NONE":
        if command:
            _refuse(node, "HEALTHCHECK NONE takes no arguments", "remove them")
        return HealthInstruction(node, {"Test": ["NONE"]})
    flags = InstructionFlags(node, dict.fromkeys((*_HEALTH_TIMES, "retries"), FlagKind.TEXT))
    if kind.upper() != "CMD":
        _refuse(node, f"HEALTHCHECK does not know '{kind}'", "write HEALTHCHECK CMD COMMAND, or HEALTHCHECK NONE", kind)
    if not command:
        _refuse(node, "HEALTHCHECK CMD has no command", "write HEALTHCHECK CMD COMMAND")
    check: dict[str, list[str] | int] = {"Test": ["CMD" if node.is_json else "CMD-SHELL", *command]}
    for name in _HEALTH_TIMES:
        if time := _read_time(node, name, flags.text(name)):
            check[name.title().replace("-", "")] = time
    if retries := _read_retries(node, flags.text("retries")):
        check["Retries"] = retries
    return HealthInstruction(node, check)


def _read_time(node: DockerfileNode, name: str, text: str) -> int:
    if not text:
        return 0
    time = read_nanoseconds(text)
    if time is None:
        _refuse(node, f"--{name}={text} is not a duration", "write it like 30s, 1m30s or 500ms", f"--{name}")
    if time and time < 1_000_000:
        _refuse(node, f"--{name}={text} is shorter than a millisecond", "use 1ms or more", f"--{name}")
    return time


def _read_retries(node: DockerfileNode, text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch(r"\+?[0-9]{1,12}|-0+", text) or int(text) >= 1 << 31:
        _refuse(node, f"--retries={text} is not a number from 0 on", "write it like --retries=3", "--retries")
    return int(text)


def _read_onbuild(node: DockerfileNode) -> OnbuildInstruction:
    if node.inner is None:
        _refuse(node, "ONBUILD holds no instruction", "write ONBUILD INSTRUCTION, as in: ONBUILD RUN make")
    InstructionFlags(node, {})
    if node.inner.keyword in ("ONBUILD", "FROM", "MAINTAINER"):
        _refuse(node, f"ONBUILD cannot hold {node.inner.keyword}", None, node.inner.name)
    expression = _ONBUILD.sub("", node.text, count=1) if _ONBUILD.match(node.text) else node.text
    return OnbuildInstruction(node, expression + join_heredocs(node.heredocs))


def join_heredocs(heredocs: tuple[Heredoc, ...]) -> str:
    """The documents as they follow their line."""
    return "".join(f"\n{heredoc.content}{heredoc.name}" for heredoc in heredocs)


def _read_one(node: DockerfileNode) -> WordsInstruction:
    if len(node.words) != 1:
        _refuse(node, f"{node.keyword} has no value", f"write {node.keyword} VALUE")
    if node.keyword != "STOPSIGNAL":  # whose flags nobody reads
        InstructionFlags(node, {})
    return WordsInstruction(node, node.words)


def _read_some(node: DockerfileNode) -> WordsInstruction:
    if not node.words:
        _refuse(node, f"{node.keyword} has no value", f"write {node.keyword} VALUE")
    InstructionFlags(node, {})
    words = sorted(node.words) if node.keyword == "EXPOSE" else [word.strip() for word in node.words]
    if not all(words):
        _refuse(node, f"{node.keyword} has an empty value", "remove it")
    return WordsInstruction(node, tuple(words))


def _read_command(node: DockerfileNode) -> WordsInstruction:
    InstructionFlags(node, {})
    return WordsInstruction(node, _join(node))


def _read_shell(node: DockerfileNode) -> WordsInstruction:
    InstructionFlags(node, {})
    if not node.words or not node.is_json:
        _refuse(node, "SHELL takes an array of strings in JSON", 'write it like SHELL ["/bin/bash", "-c"]')
    return WordsInstruction(node, node.words)


_READERS: dict[str, Callable[[DockerfileNode], Instruction]] = {
    "FROM": _read_from,
    "RUN": _read_run,
    "COPY": _read_copy,
    "ADD": _read_copy,
    "ENV": _read_pairs,
    "LABEL": _read_pairs,
    "ARG": _read_arg,
    "HEALTHCHECK": _read_health,
    "ONBUILD": _read_onbuild,
    "CMD": _read_command,
    "ENTRYPOINT": _read_command,
    "SHELL": _read_shell,
    "EXPOSE": _read_some,
    "VOLUME": _read_some,
    "USER": _read_one,
    "WORKDIR": _read_one,
    "STOPSIGNAL": _read_one,
    "MAINTAINER": _read_one,
}
