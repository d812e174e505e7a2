# SPDX-License-Identifier: BSD-3-Clause
"""A recipe of either kind as rules look at it: stages with a base, runs with their commands, settings and copies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kedge.base.frozen import JsonValue, frozen
from kedge.base.shell_text import Command, find_commands
from kedge.builds.definition.definition import Definition, Script, parse_stages
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    CopyInstruction,
    FromInstruction,
    PairsInstruction,
    RunInstruction,
    WordsInstruction,
    read_instruction,
)
from kedge.builds.dockerfile.syntax import DockerfileNode, read_syntax
from kedge.builds.step_values import RecipePlace

# The commands of a shell script in a recipe, as rules ask for them: program, options, what is piped where, places.
#
# Functions, loops and branches are read as the commands in them. What a variable holds is not known.

_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "time"))
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"\d*<<-?[^<]")
_TARGET = re.compile(r"\A(\d*(?:&>>?|>>|[<>]))([^<>&|])")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its words without quotes and redirections, the variables set for it, and the one it reads from."""

    words: tuple[str, ...]
    place: RecipePlace
    assignments: tuple[tuple[str, str], ...] = ()
    source: ShellCommand | None = None  # before a `|`
    redirects: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program, without its directory."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What stands behind the program."""
        return self.words[1:]

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that are no options."""
        return tuple(word for word in self.arguments if not word.startswith("-"))

    @property
    def text(self) -> str:
        """The command on one line."""
        return " ".join((*self.words, *self.redirects))

    def has_flag(self, letter: str, *longs: str) -> bool:
        """Whether a short option (also in `-yq`) or one of the long ones is given."""
        return any(
            argument in longs
            or argument.partition("=")[0] in longs
            or (letter and re.fullmatch(r"-[A-Za-z]+", argument) is not None and letter in argument)
            for argument in self.arguments
        )


def read_commands(text: str, locate: Callable[[int], RecipePlace]) -> list[ShellCommand]:
    """The commands of a script; `locate` gives the place of a character."""
    commands: list[ShellCommand] = []
    is_piped = False
    for found in find_commands(text.replace("\\\r\n", " \\\n")):  # a recipe from Windows is meant as it looks
        source = commands[-1] if is_piped and commands else None
        commands.append(_make_command(found, locate(found.position), source))
        is_piped = found.end in ("|", "|&")
    return commands


def _make_command(found: Command, place: RecipePlace, source: ShellCommand | None) -> ShellCommand:
    left = [word.text for word in found.words]
    assignments: list[tuple[str, str]] = []
    while left:
        assignment = _ASSIGNMENT.fullmatch(left[0])
        if left[0] in _KEYWORDS or left[0] in ("env", "exec", "command", "nice"):
            left.pop(0)
        elif left[0] == "sudo":
            left.pop(0)
            while left and left[0].startswith("-"):
                left.pop(0)
        elif assignment is not None:
            assignments.append((assignment[1], assignment[2]))
            left.pop(0)
        else:
            break
    redirects = tuple(_TARGET.sub(r"\1 \2", text) for text in found.redirects if not _HEREDOC.match(text))
    return ShellCommand(tuple(left), place, tuple(assignments), source, redirects)


RUN, HOST_RUN, COPY, ADD, SETTING, ARGUMENT, LABEL, START, ENVIRONMENT = (
    *("run", "host run", "copy", "add", "setting", "argument", "label", "start", "environment"),
)


@dataclass(frozen=True, slots=True)
class LintStep:
    """One instruction or section."""

    kind: str
    place: RecipePlace
    text: str
    commands: tuple[ShellCommand, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()  # settings, arguments, labels
    sources: tuple[str, ...] = ()  # of copies
    destination: str = ""
    flags: tuple[str, ...] = ()
    shell: str = "sh"


@dataclass(slots=True)
class LintStage:
    """A stage: what it begins with, and its steps in the order in which they run."""

    place: RecipePlace
    agent: str
    image: str
    name: str = ""
    steps: list[LintStep] = field(default_factory=list)
    is_result: bool = True  # what is in it is in the result: the last stage, and those it is based on

    def select(self, *kinds: str) -> Iterator[LintStep]:
        """The steps of these kinds."""
        return (step for step in self.steps if step.kind in kinds)


@dataclass(frozen=True, slots=True)
class LintRecipe:
    """A whole recipe."""

    kind: str  # dockerfile or definition
    name: str
    text: str
    stages: tuple[LintStage, ...]
    definitions: tuple[Definition, ...] = ()

    @property
    def result(self) -> LintStage:
        """The last stage."""
        return self.stages[-1]


def view_dockerfile(text: str, name: str) -> LintRecipe:
    """A Dockerfile; raises InvalidRecipe."""
    stages: list[LintStage] = []
    arguments: list[LintStep] = []
    shell = "sh"
    for node in read_syntax(text, name).nodes:
        instruction = read_instruction(node)
        if isinstance(instruction, FromInstruction):
            stages.append(LintStage(node.find(instruction.image), "docker", instruction.image, instruction.name))
            stages[-1].steps += arguments if len(stages) == 1 else []
            shell = "sh"
            continue
        if isinstance(instruction, WordsInstruction) and node.keyword == "SHELL":
            shell = instruction.words[0].rpartition("/")[2] if instruction.words else "sh"
        step = _view_instruction(node, instruction, shell)
        if step is not None:
            (stages[-1].steps if stages else arguments).append(step)
    _mark_results(stages)
    return LintRecipe("dockerfile", name, text, tuple(stages))


def _mark_results(stages: list[LintStage]) -> None:
    """Only the last stage, and those it is based on, are in the result."""
    for stage in stages[:-1]:
        stage.is_result = False
    wanted = stages[-1].image.lower() if stages else ""
    for stage in reversed(stages[:-1]):
        if stage.name and stage.name == wanted:
            stage.is_result = True
            wanted = stage.image.lower()


def _view_instruction(node: DockerfileNode, instruction: object, shell: str) -> LintStep | None:
    if isinstance(instruction, RunInstruction):
        commands = tuple(_read_run(node, instruction))
        return LintStep(RUN, node.place, node.text, commands, flags=instruction.mounts, shell=shell)
    if isinstance(instruction, CopyInstruction):
        kind = ADD if node.keyword == "ADD" else COPY
        flags = (*node.flags, *(("--from",) if instruction.origin else ()))
        return LintStep(
            kind, node.place, node.text, sources=instruction.sources, destination=instruction.destination, flags=flags
        )
    if isinstance(instruction, PairsInstruction):
        kind = SETTING if node.keyword == "ENV" else LABEL
        return LintStep(kind, node.place, node.text, pairs=instruction.pairs)
    if isinstance(instruction, ArgInstruction):
        pairs = tuple((name, value or "") for name, value in instruction.arguments)
        return LintStep(ARGUMENT, node.place, node.text, pairs=pairs)
    if isinstance(instruction, WordsInstruction) and node.keyword in ("CMD", "ENTRYPOINT"):
        return LintStep(START, node.place, " ".join(instruction.words))
    return None


def _read_run(node: DockerfileNode, instruction: RunInstruction) -> Iterator[ShellCommand]:
    if node.is_json:
        yield ShellCommand(instruction.words, node.place)
        return
    if node.heredocs and re.fullmatch(r"(?i)run\s+(?:--\S+\s+)*<<\S+\s*", node.text):
        for heredoc in node.heredocs:
            first = node.end - heredoc.content.count("\n")
            content = heredoc.content
            yield from read_commands(content, lambda o, c=content, f=first: _place_in(node.file, c, o, f))  # type: ignore[misc]
        return
    text = node.line.text
    begin = re.match(r"(?is)\s*run\s+(?:--\S+\s+)*", text)
    offset = begin.end() if begin is not None else 0
    yield from read_commands(text[offset:], lambda o: RecipePlace(node.file, *node.line.locate(offset + o)))


def _place_in(file: str, text: str, offset: int, first_line: int) -> RecipePlace:
    line = text.count("\n", 0, offset)
    return RecipePlace(file, first_line + line, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def view_definition(text: str, name: str) -> LintRecipe:
    """A definition file; raises InvalidRecipe."""
    definitions = parse_stages(text, name)
    stages = []
    for definition in definitions:
        header, lines = definition.header, definition.header_lines
        place = RecipePlace(name, lines.get("from", lines.get("bootstrap", definition.line)))
        agent, image = header.get("bootstrap", "").lower(), header.get("from", "")
        stage = LintStage(place, agent, image, header.get("stage", ""))
        stage.steps = list(_list_sections(definition))
        stages.append(stage)
    _mark_results(stages)
    return LintRecipe("definition", name, text, tuple(stages), tuple(definitions))


def _list_sections(definition: Definition) -> Iterator[LintStep]:
    scripts = definition.scripts
    for key in ("pre", "setup"):
        if key in scripts:
            yield _view_script(HOST_RUN, scripts[key], definition.name, key)
    for files in definition.files:
        flags = (files.arguments,) if files.arguments else ()
        for transfer in files.transfers:
            place = RecipePlace(definition.name, transfer.line)
            yield LintStep(
                COPY, place, "%files", sources=(transfer.source,), destination=transfer.destination, flags=flags
            )
    if "post" in scripts:
        yield _view_script(RUN, scripts["post"], definition.name, "post")
    if "environment" in scripts:
        yield _view_script(ENVIRONMENT, scripts["environment"], definition.name, "environment")
    for key in ("runscript", "startscript"):
        if key in scripts:
            yield _view_script(START, scripts[key], definition.name, key)
    if "labels" in scripts:
        place = RecipePlace(definition.name, scripts["labels"].line)
        yield LintStep(LABEL, place, "%labels", pairs=tuple(definition.labels.items()))


def _view_script(kind: str, script: Script, name: str, section: str) -> LintStep:
    shell = "bash" if "bash" in script.arguments or script.script.lstrip().startswith("#!/bin/bash") else "sh"
    commands = read_commands(script.script, lambda offset: _place_in(name, script.script, offset, script.line + 1))
    place = RecipePlace(name, script.line)
    return LintStep(kind, place, script.script, tuple(commands), flags=(section,), shell=shell)


# A finding of `kedge recipe lint`: where, which rule, how bad, why, and the better line.

WARNING, NOTE = "warning", "note"
LEVELS = (WARNING, NOTE)


@frozen
class LintFinding(JsonValue):
    """One thing to change in a recipe."""

    place: RecipePlace
    rule: str  # its name, as `# kedge: ignore=NAME` takes it
    level: str
    message: str
    reason: str
    better: str = ""  # what to write instead; may have several lines

    def __str__(self) -> str:
        return f"{self.place}: {self.level}: {self.message} [{self.rule}]"


# What is known of base images by their names: the frameworks they ship, their shells, and their smaller siblings.

_TORCH = frozenset(("torch", "torchvision", "torchaudio", "torchtext", "triton", "pytorch-triton"))
_TENSORFLOW = frozenset(("tensorflow", "tensorflow-gpu", "keras", "tensorboard"))
_FRAMEWORKS = (
    (
        re.compile(r"(?:docker://)?nvcr\.io/nvidia/pytorch\b"),
        _TORCH - {"torchaudio"} | {"apex", "transformer-engine", "flash-attn", "numpy"},
    ),
    (re.compile(r"(?:docker://)?nvcr\.io/nvidia/tensorflow\b"), _TENSORFLOW | {"horovod", "numpy"}),
    (re.compile(r"(?:docker://)?nvcr\.io/nvidia/jax\b"), frozenset(("jax", "jaxlib"))),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?pytorch/pytorch\b"), _TORCH - {"torchtext"}),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?rocm/pytorch\b"), _TORCH),
    (re.compile(r"(?:docker://)?(?:docker\.io/)?tensorflow/tensorflow\b"), _TENSORFLOW),
)
_NVIDIA = re.compile(r"(?:docker://)?nvcr\.io/nvidia/(?:pytorch|tensorflow|jax)\b")
_DEBIAN = re.compile(
    r"(?:\A|/)(?:ubuntu|debian)\b|ubuntu\d|\b(?:bookworm|bullseye|buster|stretch|trixie|jammy|focal|bionic|xenial|noble)\b"
    r"|(?:\A|/)python:3[\d.]*(?:-slim)?\Z|pytorch/pytorch|continuumio/|tensorflow/tensorflow|nvcr\.io/nvidia/(?:pytorch|tensorflow)"
)
_LIBRARY_PATH = re.compile(r"nvidia/cuda\b|nvcr\.io/|pytorch/pytorch|tensorflow/tensorflow:.*gpu|intel/oneapi|rocm/")
_FILE = re.compile(
    r"(?:\.{0,2}/|(?:oci|oci-archive|docker-archive|docker-daemon|host|file):(?!//)|.*\.(?:sif|sqsh|tar)\Z)"
)
_DEVEL = re.compile(r"(?:nvidia/cuda|nvidia/nvhpc|pytorch/pytorch)[^:]*:\S*-devel\b")


def find_shipped(image: str) -> frozenset[str]:
    """The Python packages that an image is taken for, in lower case."""
    return next((names for pattern, names in _FRAMEWORKS if pattern.match(image)), frozenset())


def is_nvidia_framework(image: str) -> bool:
    """Whether its frameworks are NVIDIA's own builds, which PyPI does not have."""
    return _NVIDIA.match(image) is not None


def has_plain_shell(image: str) -> bool:
    """Whether /bin/sh is dash, which has no `source` and no `[[`."""
    return _DEBIAN.search(image) is not None and "alpine" not in image


def sets_library_path(image: str) -> bool:
    """Whether its config sets LD_LIBRARY_PATH."""
    return _LIBRARY_PATH.search(image) is not None


def name_runtime(image: str) -> str:
    """The image without compilers, of one that has them; empty where none is known."""
    return image.replace("-devel", "-runtime", 1) if _DEVEL.search(image) else ""


def is_unpinned(image: str) -> bool:
    """Whether a name in a registry has neither a tag nor a digest, or the tag `latest`."""
    if "@" in image or "$" in image or "{{" in image or not image or _FILE.match(image):
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")
