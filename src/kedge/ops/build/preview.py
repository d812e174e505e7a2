# SPDX-License-Identifier: BSD-3-Clause
"""What a build would do: its stages and steps, and which of them the cache has. Of bases only manifests are fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kedge.frozen import JsonValue
from kedge.ops.build.build import open_session
from kedge.ops.build.convert_spec import names_image
from kedge.ops.build.recipe_input import load_recipe
from kedge.ops.build.request import BuildDisplay, BuildRequest
from kedge.ops.build.states.build_state import StageResult
from kedge.ops.build.steps.origins import FileOrigins
from kedge.ops.build.steps.session import BuildSession
from kedge.ops.build.steps.stage_builder import StageBuilder
from kedge.ops.build.steps.stages import list_needed, name_stages
from kedge.ops.setup.workplace import Workplace
from kedge.recipe.steps import Stage, StagePlan, Step


@dataclass(frozen=True, slots=True)
class PreviewedStep(JsonValue):
    """One step."""

    number: int
    line: int
    text: str
    state: str  # cached, or run


@dataclass(frozen=True, slots=True)
class PreviewedStage(JsonValue):
    """One stage that the target needs."""

    name: str
    base: str
    digest: str  # of the base, where a registry says it
    steps: tuple[PreviewedStep, ...]


@dataclass(frozen=True, slots=True)
class BuildPreview(JsonValue):
    """A build that was not begun."""

    recipe: str
    kind: str
    context: str
    output: str
    stages: tuple[PreviewedStage, ...]
    warnings: tuple[str, ...]


class _StageUnknownError(Exception):
    """A step needs the result of a stage that has to be built first."""


def preview(request: BuildRequest, workplace: Workplace, display: BuildDisplay) -> BuildPreview:
    """What `build` would do with this request now."""
    output = str(request.output.path or request.output.tag or "the cache")
    if names_image(request):
        return BuildPreview(request.spec, "image", "", output, (), ())
    source = load_recipe(request, workplace, os.environ)
    with open_session(request, workplace, display, source) as session:
        needed = list_needed(source.recipe.stages, source.recipe.target)
        origins = FileOrigins(session, source.recipe.kind == "definition")
        look = _Look(session, origins, name_stages(needed))
        stages = tuple(look.show_stage(stage) for stage in needed)
    recipe = source.recipe
    return BuildPreview(recipe.name, recipe.kind, str(source.context), output, stages, source.warnings)


@dataclass(slots=True)
class _Look:
    """The stages so far; a result is there for those whose steps are all in the cache."""

    session: BuildSession
    origins: FileOrigins
    titles: dict[int, str]
    results: dict[int, StageResult] = field(default_factory=dict)

    def show_stage(self, stage: Stage) -> PreviewedStage:
        """One stage and its steps."""
        builder = StageBuilder(self.session, stage, self.origins, self._wait_for, self.titles[stage.index])
        try:
            section = builder.open_base()
        except _StageUnknownError:
            steps = _list_shown(builder, stage.plan({}))
            return _show_stage(builder, "", steps, ["run"] * len(steps))
        plan = stage.plan(section)
        steps = _list_shown(builder, plan)
        states = self._find_states(builder, steps)
        if "run" not in states:
            self.results[stage.index] = StageResult(builder.state, plan.section, plan.warnings, plan.is_decorated)
        return _show_stage(builder, "" if stage.base.stage is not None else builder.state.base.digest, steps, states)

    def _find_states(self, builder: StageBuilder, steps: list[Step]) -> list[str]:
        """`cached` up to the first step without a record, `run` from there on."""
        states: list[str] = []
        for step in steps if self.session.request.use_cache else ():
            try:
                record = self.session.store.steps.find(builder.make_key(step))
            except _StageUnknownError:
                break
            if record is None:
                break
            builder.advance(step, record)
            states.append("cached")
        return states + ["run"] * (len(steps) - len(states))

    def _wait_for(self, index: int) -> StageResult:
        if index not in self.results:
            raise _StageUnknownError
        return self.results[index]


def _list_shown(builder: StageBuilder, plan: StagePlan) -> list[Step]:
    """The steps that a display shows."""
    return [step for step, label in builder.list_steps(plan) if label is not None]


def _show_stage(builder: StageBuilder, digest: str, steps: list[Step], states: list[str]) -> PreviewedStage:
    base = builder.stage.base
    shown = [
        PreviewedStep(number, step.place.line, step.text, state)
        for number, (step, state) in enumerate(zip(steps, states, strict=True), 1)
    ]
    return PreviewedStage(builder.title, base.reference or base.agent, digest, tuple(shown))
