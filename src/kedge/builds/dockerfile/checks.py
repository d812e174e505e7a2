# SPDX-License-Identifier: BSD-3-Clause
"""What BuildKit's own checks find in a Dockerfile, under their names, so that `# check=skip=NAME` works here too.

Checks that need the values of variables are made where these are known: `UndefinedVar` by the plan of a stage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kedge.base.frozen import frozen
from kedge.builds.dockerfile.expand import ExpansionBudget, ExpansionError, ExpansionRules, expand
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    FromInstruction,
    Instruction,
    PairsInstruction,
    WordsInstruction,
    read_instruction,
)
from kedge.builds.dockerfile.scope import list_platform_values
from kedge.builds.dockerfile.syntax import DockerfileNode, DockerfileSyntax, read_syntax
from kedge.builds.step_values import BuildArguments, RecipePlace, refuse_recipe

_RESERVED = ("context", "scratch")
_ONCE = ("CMD", "ENTRYPOINT", "HEALTHCHECK")
_SECRET = re.compile("(?:_|^)(?:apikey|auth|credentials?|key|password|pword|passwd|secret|token)(?:_|$)", re.IGNORECASE)
_NO_SECRET = re.compile("(?:_|^)(?:public|file|version)(?:_|$)", re.IGNORECASE)


@frozen
class DockerfileWarning:
    """Something that works, and is better written otherwise."""

    place: RecipePlace
    rule: str  # BuildKit's name for it
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message} ({self.rule})"


_Finding = tuple[DockerfileNode, str, str]  # where, rule, message


def check_content(content: DockerfileContent) -> tuple[DockerfileWarning, ...]:
    """Return all findings in the order of lines, without those that the file itself says to skip."""
    checks: tuple[Callable[[DockerfileContent], Iterator[_Finding]], ...] = (
        _check_lines,
        _check_casing,
        _check_stage_names,
        _check_bases,
        _check_platforms,
        _check_stages,
    )
    findings = [finding for check in checks for finding in check(content)]
    skipped = _read_skipped(content.syntax.directives.get("check", ""))
    warnings = [
        DockerfileWarning(node.place, rule, message)
        for node, rule, message in findings
        if not is_skipped(rule, skipped, node)
    ]
    return tuple(sorted(warnings, key=lambda warning: (warning.place.line, warning.rule)))


def is_skipped(rule: str, skipped: frozenset[str], node: DockerfileNode) -> bool:
    """Whether the file, or the comment above the instruction, says to skip a rule."""
    for comment in node.line.comments:
        name, _, value = comment.partition("=")
        if name.strip().lower() == "check":
            skipped |= _read_skipped(value)
    return rule in skipped or "all" in skipped


def _read_skipped(text: str) -> frozenset[str]:
    """The rules of `skip=A,B;error=true`."""
    for part in text.strip().partition(" ")[0].split(";"):
        key, _, value = part.partition("=")
        if key.strip() == "skip":
            return frozenset(name.strip() for name in value.split(","))
    return frozenset()


def _walk(content: DockerfileContent) -> Iterator[Instruction]:
    yield from content.arguments
    for stage in content.stages:
        yield stage.beginning
        yield from stage.instructions


def _check_lines(content: DockerfileContent) -> Iterator[_Finding]:
    for node in content.syntax.nodes:
        if node.line.has_gap:
            yield node, "NoEmptyContinuation", "an empty line stands inside of a continued one"
        if node.keyword == "MAINTAINER":
            yield node, "MaintainerDeprecated", "use LABEL org.opencontainers.image.authors instead of MAINTAINER"


def _check_casing(content: DockerfileContent) -> Iterator[_Finding]:
    """Find names of instructions whose case is not that of most of them."""
    nodes = [instruction.node for stage in content.stages for instruction in (stage.beginning, *stage.instructions)]
    lower = sum(node.name.islower() for node in nodes)
    upper = sum(node.name.isupper() for node in nodes)
    change, case = (str.lower, "lower case") if lower > upper else (str.upper, "upper case")
    for node in nodes:
        if node.name != change(node.name):
            yield node, "ConsistentInstructionCasing", f"'{node.name}': most instructions of this file are in {case}"


def _check_stage_names(content: DockerfileContent) -> Iterator[_Finding]:
    seen: set[str] = set()
    for stage in content.stages:
        node, name = stage.beginning.node, stage.beginning.name
        if not name:
            continue
        _, keyword, written = node.words
        if written != written.lower():
            yield node, "StageNameCasing", f"the name of the stage '{written}' has capitals"
        if (node.name.islower() and not keyword.islower()) or (node.name.isupper() and not keyword.isupper()):
            yield node, "FromAsCasing", f"'{node.name}' and '{keyword}' are not in the same case"
        if name in _RESERVED:
            yield node, "ReservedStageName", f"'{name}' has a meaning of its own and is no good name for a stage"
        if name in seen:
            yield node, "DuplicateStageName", f"a second stage is named '{name}'"
        seen.add(name)


def _check_bases(content: DockerfileContent) -> Iterator[_Finding]:
    """Variables in FROM that nothing sets, and bases that are empty unless a build argument is given."""
    rules = ExpansionRules(escape=content.syntax.escape, budget=ExpansionBudget())
    values = dict.fromkeys([*list_platform_values(BuildArguments()), "TARGETSTAGE"], "x")
    declared = set(values)
    for name, default in (pair for instruction in content.arguments for pair in instruction.arguments):
        declared.add(name)
        if default is not None:
            values[name] = _expand(default, values, rules)[0]
    for stage in content.stages:
        node = stage.beginning.node
        image, missing = _expand(stage.beginning.image, values, rules)
        missing |= _expand(stage.beginning.platform, values, rules)[1]
        for name in sorted(missing - declared):
            yield node, "UndefinedArgInFrom", f"no ARG before the first FROM declares '{name}'"
        is_wrong = not image or image.startswith((":", "/")) or image.endswith((":", "/"))
        if is_wrong and "$" in stage.beginning.image:  # without, it is a file, which kedge takes as a base
            yield node, "InvalidDefaultArgInFrom", f"without build arguments '{stage.beginning.image}' names no image"


def _expand(text: str, values: dict[str, str], rules: ExpansionRules) -> tuple[str, set[str]]:
    try:
        expansion = expand(text, values, rules)
    except ExpansionError:
        return "x", set()
    return expansion.text, set(expansion.missing)


def _check_platforms(content: DockerfileContent) -> Iterator[_Finding]:
    for stage in content.stages:
        node, platform, name = stage.beginning.node, stage.beginning.platform, stage.beginning.name
        if platform in ("$TARGETPLATFORM", "${TARGETPLATFORM}"):
            yield node, "RedundantTargetPlatform", f"--platform={platform} is the default"
        parts = [part for part in platform.lower().split("/")[:2] if part]
        if parts and "$" not in platform and not any(part in name for part in parts):
            message = f"--platform={platform} makes the stage one for this platform only"
            yield node, "FromPlatformFlagConstDisallowed", message


def _check_stages(content: DockerfileContent) -> Iterator[_Finding]:
    below: dict[str, _Walk] = {}
    for stage in content.stages:
        walk = _Walk(stage, below.get(stage.beginning.image))
        yield from walk.check()
        if stage.beginning.name:
            below[stage.beginning.name] = walk


class _Walk:
    """One stage from its FROM on, with what it inherits from the stage that it is based on."""

    def __init__(self, stage: StageContent, parent: _Walk | None) -> None:
        self.stage = stage
        self.has_directory: bool = parent.has_directory if parent else False
        self.has_shell: bool = parent.has_shell if parent else False
        self.last: dict[str, DockerfileNode] = {}

    def check(self) -> Iterator[_Finding]:
        for instruction in self.stage.instructions:
            yield from self._check_repeated(instruction.node)
            if isinstance(instruction, PairsInstruction | ArgInstruction):
                yield from _check_names(instruction)
            elif isinstance(instruction, WordsInstruction):
                yield from self._check_words(instruction.node, instruction.words)

    def _check_repeated(self, node: DockerfileNode) -> Iterator[_Finding]:
        if node.keyword not in _ONCE:
            return
        if node.keyword in self.last:
            message = f"a later {node.keyword} of this stage replaces this one"
            yield self.last[node.keyword], "MultipleInstructionsDisallowed", message
        self.last[node.keyword] = node

    def _check_words(self, node: DockerfileNode, words: tuple[str, ...]) -> Iterator[_Finding]:
        match node.keyword:
            case "WORKDIR":
                if not self.has_directory and not words[0].startswith(("/", "$")):
                    message = f"'{words[0]}' is relative to whatever directory the base image has"
                    yield node, "WorkdirRelativePath", message
                self.has_directory = True
            case "SHELL":
                self.has_shell = True
            case "CMD" | "ENTRYPOINT" if not node.is_json and not self.has_shell:
                message = f'write {node.keyword} ["program", "argument"]: the program then gets signals itself'
                yield node, "JSONArgsRecommended", message
            case "EXPOSE":
                yield from _check_ports(node, words)


def _check_names(instruction: PairsInstruction | ArgInstruction) -> Iterator[_Finding]:
    node = instruction.node
    if isinstance(instruction, PairsInstruction):
        names = [name for name, _ in instruction.pairs]
        if instruction.is_legacy:
            yield node, "LegacyKeyValueFormat", f"write {node.keyword} {names[0]}=VALUE, with '='"
    else:
        names = [name for name, _ in instruction.arguments]
    for name in names if node.keyword != "LABEL" else ():
        if is_secret_name(name):
            message = f"{node.keyword} '{name}' stays in the image for everybody; use RUN --mount=type=secret"
            yield node, "SecretsUsedInArgOrEnv", message


def is_secret_name(name: str) -> bool:
    """Whether a variable looks like one that holds a password, a key or a token."""
    return bool(_SECRET.search(name)) and not _NO_SECRET.search(name)


def _check_ports(node: DockerfileNode, words: tuple[str, ...]) -> Iterator[_Finding]:
    for word in words:
        protocol = word.partition("/")[2]
        if "$" not in protocol and protocol != protocol.lower():
            yield node, "ExposeProtoCasing", f"the protocol in '{word}' has capitals"
        if ":" in word.partition("$")[0]:
            yield node, "ExposeInvalidFormat", f"'{word}': EXPOSE takes ports of the container only"


# A Dockerfile read as far as it can be without any value: its instructions, stage by stage.

_BEGIN = "begin with FROM and the base image"


@frozen
class StageContent:
    """A FROM and the instructions behind it."""

    beginning: FromInstruction
    instructions: tuple[Instruction, ...]


@frozen
class DockerfileContent:
    """A whole file: the ARGs before the first FROM, then the stages."""

    syntax: DockerfileSyntax
    arguments: tuple[ArgInstruction, ...]
    stages: tuple[StageContent, ...]


def read_content(text: str, file: str = "Dockerfile") -> DockerfileContent:
    """The instructions of a Dockerfile; raises InvalidRecipe with the place of the first mistake."""
    syntax = read_syntax(text, file)
    arguments: list[ArgInstruction] = []
    groups: list[tuple[FromInstruction, list[Instruction]]] = []
    for instruction in map(read_instruction, syntax.nodes):
        if isinstance(instruction, FromInstruction):
            groups.append((instruction, []))
        elif groups:
            groups[-1][1].append(instruction)
        elif isinstance(instruction, ArgInstruction):
            arguments.append(instruction)
        else:
            message = f"{instruction.node.keyword} stands before the first FROM"
            raise refuse_recipe(instruction.node.place, message, _BEGIN)
    if not groups:
        raise refuse_recipe(syntax.nodes[-1].place, "no FROM in this file", _BEGIN)
    stages = tuple(StageContent(beginning, tuple(others)) for beginning, others in groups)
    return DockerfileContent(syntax, tuple(arguments), stages)
