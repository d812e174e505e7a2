# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile as a recipe: its stages, what each is based on and copies from, and their plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kedge.base.frozen import replace
from kedge.base.nearest import propose
from kedge.builds.addresses import is_address, is_git_address, read_git_address
from kedge.builds.dockerfile.checks import DockerfileWarning, check_content, read_content
from kedge.builds.dockerfile.expand import ExpansionRules
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    CopyInstruction,
    FromInstruction,
    HealthInstruction,
    Instruction,
    OnbuildInstruction,
    PairsInstruction,
    RunInstruction,
    WordsInstruction,
    join_heredocs,
    read_instruction,
)
from kedge.builds.dockerfile.mounts import MountContext, check_mount, read_mount
from kedge.builds.dockerfile.scope import (
    GlobalScope,
    expand_in,
    is_command_variable,
    is_known_without_arg,
    list_platform_values,
    make_globals,
)
from kedge.builds.dockerfile.section import SectionState, clean_path, resolve_destination
from kedge.builds.dockerfile.syntax import DockerfileNode, parse_heredoc, read_syntax
from kedge.builds.step_values import (
    Base,
    BuildArguments,
    ConfigStep,
    CopyOrigin,
    CopyStep,
    DirectoryStep,
    InlineFile,
    Recipe,
    RecipePlace,
    RunStep,
    StagePlan,
    Step,
    name_stage,
    number_stage,
    refuse_recipe,
)
from kedge.errors import InvalidRecipe


@dataclass(slots=True)
class DockerfileStage:
    """One FROM and what follows it."""

    index: int
    name: str
    base: Base
    instructions: tuple[Instruction, ...]  # FROM first
    family: StageFamily
    needs: tuple[int, ...] = ()
    _inherited: dict[str, str] | None = None  # ARG values at its end, for stages that are based on it

    def plan(self, section: Mapping[str, Any]) -> StagePlan:
        """Return the stage's steps, for a base with this `config` object."""
        parent = None if self.base.stage is None else self.family.stages[self.base.stage]
        start = {"WorkingDir": "/"} if self.base.agent == "scratch" else {}
        planner = StagePlanner(self.family.scope, self._find_origin, SectionState(start | dict(section)))
        planner.is_foreign = parent is None
        if parent:
            planner.arguments = dict(parent.inherit_arguments())
            planner.declared = set(planner.arguments)
        plan = planner.plan(self.instructions)
        self._inherited = planner.arguments
        return plan

    def inherit_arguments(self) -> Mapping[str, str]:
        """The ARG values at its end; those that need the base's variables count only after it was planned."""
        if self._inherited is None:
            self.plan({})
        return self._inherited or {}

    def _find_origin(self, name: str, node: DockerfileNode) -> CopyOrigin:
        origin = self.family.find_origin(name, node, self.index)
        if origin.stage is not None and origin.stage not in self.needs:
            message = f"ONBUILD of the base image copies from the stage '{name}', which this stage does not name"
            raise refuse_recipe(
                self.base.place, message, f"add to this stage: RUN --mount=from={name},target=/mnt true"
            )
        return origin


@dataclass(slots=True)
class StageFamily:
    """The stages of a file, which refer to each other by name and number."""

    scope: GlobalScope
    stages: list[DockerfileStage] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def find_origin(self, name: str, node: DockerfileNode, index: int) -> CopyOrigin:
        """What `--from=NAME` of a stage means: a context, an earlier stage, or an image."""
        rules = self.scope.rules
        if expand_in(node, name, {}, rules).text != name:
            hint = "add a stage with FROM, where global ARG values work, and name that stage"
            raise refuse_recipe(node.find("--from"), "--from cannot have variables", hint)
        if name in self.scope.given.contexts:
            return CopyOrigin(name=name)
        stage = int(name) if re.fullmatch("[0-9]{1,9}", name) else self.names.get(name.lower())
        if stage is None:
            stage = self._find_unnamed(name)
        if stage is None:
            return CopyOrigin(image=name)
        if stage >= index:
            raise self._refuse_order(name, node, stage)
        return CopyOrigin(stage=stage)

    def _find_unnamed(self, name: str) -> int | None:
        """The stage without a name that displays call so; BuildKit would look for an image `stage-1`."""
        number = number_stage(name)
        return number if number is not None and number < len(self.stages) and not self.stages[number].name else None

    def _refuse_order(self, name: str, node: DockerfileNode, stage: int) -> Exception:
        if stage >= len(self.stages):
            message, hint = f"there is no stage {name}", f"the file has {len(self.stages)}, the first is number 0"
        else:
            message, hint = f"the stage '{name}' is not complete here", "copy only from stages that stand above"
        return refuse_recipe(node.find(name), message, hint)


def make_recipe(text: str, name: str, arguments: BuildArguments | None = None) -> Recipe:
    """The recipe of a Dockerfile; raises InvalidRecipe with the place of the first mistake."""
    given = arguments or BuildArguments()
    content = read_content(text, name)
    last = content.stages[-1].beginning.name
    family = StageFamily(make_globals(content.arguments, given, content.syntax.escape, given.target or last))
    for stage in content.stages:
        _add_stage(family, stage.beginning, stage.instructions)
    target = _find_target(family, given.target, name)
    _settle_needs(family, target)
    asked = _list_asked(content.arguments, family)
    unused = (key for key in given.values if key not in asked and not is_known_without_arg(key))
    warnings = tuple(map(str, check_content(content)))
    return Recipe(
        kind="dockerfile",
        name=name,
        text=text,
        stages=tuple(family.stages[: target + 1]),
        warnings=warnings,
        unused_arguments=tuple(unused),
    )


def _add_stage(family: StageFamily, beginning: FromInstruction, others: tuple[Instruction, ...]) -> None:
    index = len(family.stages)
    base = _find_base(family, beginning)
    if base.agent == "context" and base.reference == beginning.name:
        others = ()  # the context is the stage
    family.stages.append(DockerfileStage(index, beginning.name, base, (beginning, *others), family))
    if beginning.name:
        family.names[beginning.name] = index


def _find_base(family: StageFamily, beginning: FromInstruction) -> Base:
    node, scope = beginning.node, family.scope
    image = expand_in(node, beginning.image, scope.values, scope.rules).text
    platform = expand_in(node, beginning.platform, scope.values, scope.rules).text
    place = node.find(beginning.image)
    if scope.given.keeps_undefined:
        image, platform = image or beginning.image, platform or beginning.platform
    if not image:
        hint = "give the ARG before FROM a default, or a value with --build-arg"
        raise refuse_recipe(place, f"'{beginning.image}' is empty, so FROM names no image", hint)
    if beginning.platform and not platform:
        raise refuse_recipe(node.find("--platform"), f"--platform={beginning.platform} is empty", None)
    if beginning.name and beginning.name in scope.given.contexts:
        return Base(place, "context", beginning.name, platform=platform)
    stage = family.names.get(image, family.names.get(image.lower()) if image != image.lower() else None)
    if stage is not None:
        return Base(place, "stage", image, stage, platform)
    if image in scope.given.contexts:
        return Base(place, "context", image, platform=platform)
    return Base(place, "scratch" if image == "scratch" else "docker", image, platform=platform)


def _settle_needs(family: StageFamily, target: int) -> None:
    """What each stage needs; mistakes of stages that the target does not need are no mistakes."""
    wanted = {target}
    for stage in reversed(family.stages):
        try:
            stage.needs = _list_needs(stage)
        except InvalidRecipe:
            if stage.index in wanted:
                raise
        if stage.index in wanted:
            wanted |= set(stage.needs)


def _list_needs(stage: DockerfileStage) -> tuple[int, ...]:
    """The stages a stage is based on or copies from, through ONBUILD of its base too."""
    parent = None if stage.base.stage is None else stage.family.stages[stage.base.stage]
    needs = set() if parent is None else {parent.index}
    for node, name in _list_origins((*_list_triggers(parent), *stage.instructions)):
        origin = stage.family.find_origin(name, node, stage.index)
        needs |= set() if origin.stage is None else {origin.stage}
    return tuple(sorted(needs))


def _list_triggers(parent: DockerfileStage | None) -> list[Instruction]:
    """What a stage runs because the stage below it says ONBUILD."""
    expressions = [item for item in (parent.instructions if parent else ()) if isinstance(item, OnbuildInstruction)]
    return [
        read_instruction(node)
        for item in expressions
        for node in read_syntax(item.expression, item.node.file).nodes
        if node.keyword in ("COPY", "RUN")
    ]


def _list_origins(instructions: tuple[Instruction, ...]) -> list[tuple[DockerfileNode, str]]:
    origins = []
    for instruction in instructions:
        if isinstance(instruction, CopyInstruction):
            origins.append((instruction.node, instruction.origin))
        elif isinstance(instruction, RunInstruction):
            origins += [(instruction.node, check_mount(text, instruction.node)) for text in instruction.mounts]
    return [(node, name) for node, name in origins if name]


def _find_target(family: StageFamily, target: str, file: str) -> int:
    if not target:
        return len(family.stages) - 1
    if target.lower() in family.names:
        return family.names[target.lower()]
    number = number_stage(target)
    if number is not None and number < len(family.stages):
        return number
    known = [name_stage(stage) for stage in family.stages]
    hint = propose(target, known) or f"stages: {', '.join(known)}"
    raise refuse_recipe(RecipePlace(file, 1), f"no stage '{target}' for --target", hint)


def _list_asked(before: tuple[ArgInstruction, ...], family: StageFamily) -> set[str]:
    """The names that any ARG asks for, and those of platforms."""
    everywhere = [*before, *(item for stage in family.stages for item in stage.instructions)]
    names = {name for item in everywhere if isinstance(item, ArgInstruction) for name, _ in item.arguments}
    return names | set(list_platform_values(family.scope.given)) | {"TARGETSTAGE"}


# The steps of one stage, made when the config of its base is known: variables put in, paths absolute.

_SCRIPTS = "/dev/pipes"  # where BuildKit puts a heredoc that begins with #!
_LONGEST_PATH = 4096
_SYMBOLIC = re.compile(r"[ugoa]*(?:[-+=](?:[rwxXst]*|[ugo]))+(?:,[ugoa]*(?:[-+=](?:[rwxXst]*|[ugo]))+)*")


@dataclass(slots=True)
class StagePlanner:
    """Goes through the instructions of a stage and notes what each one does."""

    scope: GlobalScope
    find_origin: Callable[[str, DockerfileNode], CopyOrigin]
    state: SectionState
    arguments: dict[str, str] = field(default_factory=dict)  # ARG values that commands see
    values: dict[str, str] = field(
        default_factory=dict
    )  # what variables are replaced by: ENV and ARG, the later counts
    steps: list[Step] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)  # names of ARGs, with a value or without
    warnings: list[DockerfileWarning] = field(default_factory=list)
    has_command: bool = False
    author: str = ""
    place: RecipePlace | None = None  # of FROM, while the triggers of the base are read
    is_foreign: bool = False  # the base is an image of somebody, and no stage of this file

    def plan(self, instructions: tuple[Instruction, ...]) -> StagePlan:
        """The steps, those of the base's ONBUILD first; their place is the FROM that names the base."""
        beginning, *others = instructions
        self.values = {**self.state.environment, **self.arguments}
        self.place = beginning.node.place
        for trigger in self.state.take_triggers():
            self._add(self._read_trigger(trigger, beginning.node))
        self.place = None
        for instruction in others:
            self._add(instruction)
        warnings = tuple(map(str, self.warnings))
        return StagePlan(tuple(self.steps), self.state.finish(), warnings, author=self.author)

    def _read_trigger(self, trigger: str, origin: DockerfileNode) -> Instruction:
        """An instruction that the base's ONBUILD holds."""
        nodes = read_syntax(trigger, "ONBUILD of the base image").nodes
        if len(nodes) != 1:
            raise refuse_recipe(origin.place, "an ONBUILD of the base image has more than one instruction")
        node = replace(nodes[0], file=origin.file, line=replace(nodes[0].line, pieces=origin.line.pieces[:1]))
        return read_instruction(node)

    def _add(self, instruction: Instruction) -> None:
        match instruction:
            case RunInstruction():
                self.steps.append(self._make_run(instruction))
            case CopyInstruction():
                self.steps.append(self._make_copy(instruction))
            case WordsInstruction() if instruction.node.keyword == "WORKDIR":
                self._change_directory(instruction)
            case _:
                self._change_section(instruction)
                self.steps.append(ConfigStep(self._place(instruction.node), self._show(instruction.node)))

    def _place(self, node: DockerfileNode) -> RecipePlace:
        return self.place or node.place

    def _show(self, node: DockerfileNode) -> str:
        """The instruction on one line, with the first line of its heredoc."""
        name, *rest = node.text.split(maxsplit=1)
        words = [name.upper(), *(" ".join(part.split()) for part in rest)]
        if node.heredocs and node.keyword == "RUN":
            first, *more = node.heredocs[0].content.strip().splitlines() or [""]
            words.append(f"({first}{'...' if more else ''})")
        return " ".join(["ONBUILD", *words] if self.place else words)

    def _expand(self, node: DockerfileNode, text: str) -> str:
        if not text:
            return text
        expansion = expand_in(node, text, self.values, self.scope.rules)
        for name in sorted(expansion.missing - self.declared):
            hint = propose(name, self.values)
            message = f"nothing sets the variable '{name}'" + (f" ({hint})" if hint else "")
            self.warnings.append(DockerfileWarning(self._place(node), "UndefinedVar", message))
        return expansion.text

    def _change_section(self, instruction: Instruction) -> None:
        match instruction:
            case PairsInstruction():
                self._set_pairs(instruction)
            case ArgInstruction():
                self._set_arguments(instruction)
            case HealthInstruction():
                self.state.set("Healthcheck", dict(instruction.check))
            case OnbuildInstruction():
                self.state.add_trigger(instruction.expression)
            case WordsInstruction():
                self._change_words(instruction.node, instruction.words)
            case FromInstruction():
                self._refuse(instruction.node, "ONBUILD cannot hold FROM")

    def _change_words(self, node: DockerfileNode, words: tuple[str, ...]) -> None:
        match node.keyword:
            case "CMD" | "ENTRYPOINT":
                self._set_command(node, words)
            case "SHELL":
                self.state.set("Shell", list(words))
            case "EXPOSE":
                self._expose(node, words)
            case "VOLUME":
                self._add_volumes(node, [self._expand(node, word) for word in words])
            case "USER":
                self.state.set("User", self._expand(node, words[0]))
            case "STOPSIGNAL":
                self._set_signal(node, self._expand(node, words[0]))
            case "MAINTAINER":
                self.author = words[0]

    def _set_command(self, node: DockerfileNode, words: tuple[str, ...]) -> None:
        """CMD, or ENTRYPOINT, which takes the base's CMD away."""
        argv = list(words) if node.is_json else [*self.state.shell, " ".join(words)]
        self.state.set("Cmd" if node.keyword == "CMD" else "Entrypoint", argv)
        if node.keyword == "CMD":
            self.has_command = True
        elif not self.has_command:
            self.state.set("Cmd", [])

    def _add_volumes(self, node: DockerfileNode, volumes: list[str]) -> None:
        if not all(volumes):
            self._refuse(node, "VOLUME has an empty value")
        self.state.add_to("Volumes", {volume: {} for volume in volumes})

    def _set_pairs(self, instruction: PairsInstruction) -> None:
        """Set pairs; those of one instruction see the variables as they were before it."""
        node = instruction.node
        pairs = [(self._expand(node, name), self._expand(node, value)) for name, value in instruction.pairs]
        if node.keyword == "LABEL":
            self.state.add_to("Labels", dict(pairs))
            return
        for name, value in pairs:
            self.arguments.pop(name, None)
            self.state.environment[name] = self.values[name] = value

    def _set_arguments(self, instruction: ArgInstruction) -> None:
        for name, default in instruction.arguments:
            self.declared.add(name)
            value = self.scope.take_argument(name, default)
            if value is not None and value == default and name not in self.scope.given.values:
                value = self._expand(instruction.node, value)
            if value is not None and is_command_variable(name):
                self.arguments[name] = self.values[name] = value

    def _expose(self, node: DockerfileNode, words: tuple[str, ...]) -> None:
        for word in words:
            for port in expand_in(node, word, self.values, self.scope.rules).words:
                try:
                    self.state.add_to("ExposedPorts", {name: {} for name in read_ports(port)})
                except PortError as error:
                    raise refuse_recipe(self._find(node, word), f"EXPOSE: {error}") from None

    def _set_signal(self, node: DockerfileNode, signal: str) -> None:
        if not is_signal(signal):
            self._refuse(node, f"'{signal}' is not a signal", "use a name such as SIGTERM, or a number")
        self.state.set("StopSignal", signal)

    def _change_directory(self, instruction: WordsInstruction) -> None:
        node = instruction.node
        path = clean_path(self.state.change_directory(self._expand(node, instruction.words[0])))
        if len(path) > _LONGEST_PATH:  # each relative one makes it longer
            self._refuse(node, f"WORKDIR is longer than {_LONGEST_PATH} characters, which no path of Linux is")
        place, text = self._place(node), self._show(node)
        if path == "/":
            self.steps.append(ConfigStep(place, text))
        else:
            self.steps.append(DirectoryStep(place, text, path, self.state.user))

    def _make_run(self, instruction: RunInstruction) -> RunStep:
        node = instruction.node
        self._warn_of_rights(instruction)
        words, script = instruction.words, None
        if node.heredocs:
            words, script = self._read_documents(node, words)
        argv = list(words) if script or node.is_json else [*self.state.shell, " ".join(words)]
        context = MountContext(
            node,
            lambda text: self._expand(node, text),
            lambda name: self._find_origin(name, node),
            clean_path(self.state.directory or "/"),
        )
        return RunStep(
            place=self._place(node),
            text=self._show(node),
            argv=tuple(argv),
            environment=tuple(sorted(self.values.items())),
            directory=clean_path(self.state.directory or "/"),
            user=self.state.user,
            mounts=tuple(read_mount(text, context) for text in instruction.mounts),
            network=instruction.network,
            script=script,
            proxies=tuple(sorted(self.scope.proxies.items())),
        )

    def _warn_of_rights(self, instruction: RunInstruction) -> None:
        """Say which flags have no effect: steps get no rights and no devices of the host."""
        ignored = {"--security=insecure": instruction.security == "insecure", "--device": bool(instruction.devices)}
        for flag, is_given in ignored.items():
            if is_given:
                message = f"{flag} has no effect; for GPUs build with --nv or --rocm"
                self.warnings.append(DockerfileWarning(self._place(instruction.node), "IgnoredFlag", message))

    def _read_documents(
        self, node: DockerfileNode, words: tuple[str, ...]
    ) -> tuple[tuple[str, ...], InlineFile | None]:
        """What the shell gets for a RUN with heredocs: their lines behind the command, or the lines themselves."""
        if len(words) != 1 or not parse_heredoc(words[0]):
            return (" ".join(words) + join_heredocs(node.heredocs),), None
        data = node.heredocs[0].stripped
        if not data.startswith("#!"):
            return (data,), None
        path = f"{_SCRIPTS}/{node.heredocs[0].name}"
        return (path,), InlineFile(path, data.encode("utf-8", "surrogateescape"))

    def _make_copy(self, instruction: CopyInstruction) -> CopyStep:
        node, flags = instruction.node, instruction.flags
        is_addition = node.keyword == "ADD"
        sources = tuple(self._expand(node, source) for source in instruction.sources)
        checksum = self._expand(node, flags.text("checksum")) if is_addition else ""
        self._check_sources(node, sources, checksum)
        return CopyStep(
            place=self._place(node),
            text=self._show(node),
            sources=sources,
            destination=resolve_destination(self.state.directory, self._expand(node, instruction.destination)),
            origin=self._find_origin(instruction.origin, node) if instruction.origin else CopyOrigin(),
            inline=tuple(self._make_inline(instruction)),
            owner=self._expand(node, flags.text("chown")),
            mode=self._read_mode(node, self._expand(node, flags.text("chmod"))),
            is_link=bool(flags.switch("link")),
            keeps_parents=not is_addition and bool(flags.switch("parents")),
            excluded=flags.all("exclude"),
            is_addition=is_addition,
            unpacks=flags.switch("unpack") if is_addition else None,
            checksum=checksum,
            keeps_git=is_addition and bool(flags.switch("keep-git-dir")),
        )

    def _find_origin(self, name: str, node: DockerfileNode) -> CopyOrigin:
        origin = self.find_origin(name, node)
        return replace(origin, is_trigger=True) if self.place is not None and self.is_foreign else origin

    def _make_inline(self, instruction: CopyInstruction) -> list[InlineFile]:
        files = []
        rules = ExpansionRules(has_quotes=False, budget=self.scope.rules.budget)
        for heredoc in instruction.inline:
            data = heredoc.stripped
            if heredoc.expands:
                data = expand_in(instruction.node, data, self.values, rules).text
            files.append(InlineFile(heredoc.name, data.encode("utf-8", "surrogateescape")))
        return files

    def _check_sources(self, node: DockerfileNode, sources: tuple[str, ...], checksum: str) -> None:
        remote = [source for source in sources if is_address(source)]
        if remote and node.keyword == "COPY":
            self._refuse(node, f"COPY cannot fetch '{remote[0]}'", "use ADD", remote[0])
        for source in remote:
            if is_git_address(source):
                read_git_address(source, self._find(node, source))
        if checksum and len(sources) != 1:
            self._refuse(node, "--checksum is for one source", "use an ADD for each of them", "--checksum")
        if checksum and not remote:
            self._refuse(node, "--checksum is for addresses", "remove it", "--checksum")

    def _read_mode(self, node: DockerfileNode, mode: str) -> str:
        is_octal = re.fullmatch(r"[0-7]{1,11}", mode) and int(mode, 8) <= 0o7777
        if mode and not is_octal and not _SYMBOLIC.fullmatch(mode):
            self._refuse(node, f"--chmod={mode} is not a mode", "write it like 755 or u=rwX,go=rX", "--chmod")
        return mode

    def _find(self, node: DockerfileNode, part: str) -> RecipePlace:
        return self.place or node.find(part)

    def _refuse(self, node: DockerfileNode, message: str, hint: str | None = None, part: str = "") -> NoReturn:
        raise refuse_recipe(self._find(node, part), message, hint)


# The ports of EXPOSE, as the config of an image has them: `8000-8001` is `8000/tcp` and `8001/tcp`.

_PROTOCOLS = ("tcp", "udp", "sctp")


class PortError(ValueError):
    """A word is no port; the message says why."""


def read_ports(word: str) -> list[str]:
    """The ports of `[[IP:]HOST:]PORT[-PORT][/PROTOCOL]`; what stands before the last colon is checked and dropped."""
    *before, last = word.rsplit(":", 2)
    ports, _, protocol = last.partition("/")
    if not ports:
        raise PortError(f"'{word}' has no port")
    if protocol.lower() not in ("", *_PROTOCOLS):
        raise PortError(f"'{protocol}' in '{word}' is not a protocol: use {', '.join(_PROTOCOLS)}")
    first, end = _read_range(ports)
    if before:
        _check_host(before[-1], word, end - first)
    if len(before) == 2 and before[0]:
        _check_address(before[0], word)
    return [f"{port}/{protocol.lower() or 'tcp'}" for port in range(first, end + 1)]


def _check_host(text: str, word: str, span: int) -> None:
    if not text:
        return
    first, end = _read_range(text)
    if span and end - first != span:
        raise PortError(f"the ranges in '{word}' have different lengths")


def _check_address(text: str, word: str) -> None:
    import ipaddress  # late: hardly a file has an address here

    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise PortError(f"'{text}' in '{word}' is not an IP address") from None


def _read_range(text: str) -> tuple[int, int]:
    first, sign, last = text.partition("-")
    begin = _read_number(first, text)
    end = _read_number(last, text) if sign and first != last else begin
    if end < begin:
        raise PortError(f"'{text}' ends before it begins")
    return begin, end


def _read_number(text: str, whole: str) -> int:
    if not re.fullmatch(r"\+?[0-9]{1,20}|-0+", text) or int(text) > 65535:
        raise PortError(f"'{whole}' is not a port from 0 to 65535")
    return int(text)


# Names of signals that STOPSIGNAL takes: those of Linux, whatever this host knows.

_NAME = re.compile(
    "ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP"
    "|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN|RTMAX|RTMIN\\+(?:[1-9]|1[0-5])|RTMAX-(?:[1-9]|1[0-4])"
)


def is_signal(text: str) -> bool:
    """Whether the text is the number or the name of a signal, with or without SIG."""
    if re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        return int(text) != 0
    return bool(_NAME.fullmatch(text.upper().removeprefix("SIG")))
