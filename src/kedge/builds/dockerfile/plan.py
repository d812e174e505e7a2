# SPDX-License-Identifier: BSD-3-Clause
"""A Dockerfile as a recipe: its stages, what each is based on and copies from, and their plans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kedge.base.nearest import propose
from kedge.builds.dockerfile.checks import check_content, read_content
from kedge.builds.dockerfile.instructions import (
    ArgInstruction,
    CopyInstruction,
    FromInstruction,
    Instruction,
    OnbuildInstruction,
    RunInstruction,
    read_instruction,
)
from kedge.builds.dockerfile.mounts import check_mount
from kedge.builds.dockerfile.planner import StagePlanner
from kedge.builds.dockerfile.scope import (
    GlobalScope,
    expand_in,
    is_known_without_arg,
    list_platform_values,
    make_globals,
)
from kedge.builds.dockerfile.section import SectionState
from kedge.builds.dockerfile.syntax import DockerfileNode, read_syntax
from kedge.builds.step_values import (
    Base,
    BuildArguments,
    CopyOrigin,
    Recipe,
    RecipePlace,
    StagePlan,
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
