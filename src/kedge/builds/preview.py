# SPDX-License-Identifier: BSD-3-Clause
"""What a build would do: its stages and steps, and which of them the cache has. Of bases only manifests are fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kedge.base.frozen import JsonValue, replace
from kedge.builds.bases.named_contexts import bind_login
from kedge.builds.build import open_session
from kedge.builds.convert_spec import names_image
from kedge.builds.recipe_input import load_recipe
from kedge.builds.request import BuildDisplay, BuildRequest, HostItem, NotMadeError
from kedge.builds.states.build_place import StageResult
from kedge.builds.step_values import Stage, StagePlan, Step
from kedge.builds.steps.host_scripts import name_host_files
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.session import BuildSession
from kedge.builds.steps.stage_builder import StageBuilder
from kedge.builds.steps.stages import list_needed, name_stages
from kedge.image.store.build_steps import StepRecord
from kedge.image.workplace import Workplace


@dataclass(frozen=True, slots=True)
class PreviewedStep(JsonValue):
    """One step."""

    number: int
    line: int
    text: str
    state: str  # cached, or run
    size: int = 0  # bytes of its layer, where it is cached


@dataclass(frozen=True, slots=True)
class PreviewedStage(JsonValue):
    """One stage that the target needs."""

    name: str
    base: str
    digest: str  # of the base, where a registry says it
    steps: tuple[PreviewedStep, ...]
    size: int = 0  # bytes of the base's layers, where a registry says it
    missing: int = 0  # bytes of these that are not in the cache


@dataclass(frozen=True, slots=True)
class BuildPreview(JsonValue):
    """A build that was not begun."""

    recipe: str
    kind: str
    context: str
    output: str
    stages: tuple[PreviewedStage, ...]
    warnings: tuple[str, ...]
    host: tuple[HostItem, ...] = ()  # what %files and %setup take from elsewhere on this host, and what is left out


class _StageUnknownError(Exception):
    """A step needs the result of a stage that has to be built first."""


def preview(request: BuildRequest, workplace: Workplace, display: BuildDisplay) -> BuildPreview:
    """What `build` would do with this request now."""
    output = str(request.output.path or request.output.tag or "the cache")
    if names_image(request):
        return BuildPreview(recipe=request.spec, kind="image", context="", output=output, stages=(), warnings=())
    source = load_recipe(request, workplace, os.environ)
    workplace = bind_login(workplace, request, source.recipe)
    with open_session(request, workplace, display, source) as session:
        session.makes = False
        needed = list_needed(source.recipe.stages, source.recipe.target)
        origins = FileOrigins(session, source.recipe.kind == "definition")
        name_host_files(session, origins, needed)
        look = _Look(session, origins, name_stages(needed))
        stages = tuple(look.show_stage(stage) for stage in needed)
        host = session.reach.items
    recipe = source.recipe
    return BuildPreview(
        recipe=recipe.name,
        kind=recipe.kind,
        context=str(source.context),
        output=output,
        stages=stages,
        warnings=source.warnings,
        host=host,
    )


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
        except (_StageUnknownError, NotMadeError):
            steps = _list_shown(builder, stage.plan({}))
            return _show_stage(builder, steps, [None] * len(steps))
        plan = stage.plan(section)
        steps = _list_shown(builder, plan)
        records = self._find_records(builder, steps)
        if None not in records:
            self.results[stage.index] = StageResult(builder.state, plan.section, plan.warnings, plan.is_decorated)
        shown = _show_stage(builder, steps, records)
        if stage.base.stage is not None:
            return shown
        base = builder.state.base
        missing = [layer.size for layer in base.layers if not self.session.store.blobs.is_present(layer)]
        size = sum(layer.size for layer in base.layers)
        return replace(shown, digest=base.digest, size=size, missing=sum(missing))

    def _find_records(self, builder: StageBuilder, steps: list[Step]) -> list[StepRecord | None]:
        """The records of steps; from the first one without a record there are none."""
        records: list[StepRecord | None] = []
        for step in steps if self.session.request.use_cache else ():
            try:
                record = self.session.store.steps.find(builder.make_key(step))
            except (_StageUnknownError, NotMadeError):
                break
            if record is None:
                break
            builder.advance(step, record)
            records.append(record)
        return records + [None] * (len(steps) - len(records))

    def _wait_for(self, index: int) -> StageResult:
        if index not in self.results:
            raise _StageUnknownError
        return self.results[index]


def _list_shown(builder: StageBuilder, plan: StagePlan) -> list[Step]:
    """The steps that a display shows."""
    return [step for step, label in builder.list_steps(plan) if label is not None]


def _show_stage(builder: StageBuilder, steps: list[Step], records: list[StepRecord | None]) -> PreviewedStage:
    base = builder.stage.base
    shown = [
        PreviewedStep(
            number,
            step.place.line,
            step.text,
            "cached" if record else "run",
            record.layer.size if record and record.layer else 0,
        )
        for number, (step, record) in enumerate(zip(steps, records, strict=True), 1)
    ]
    return PreviewedStage(builder.title, base.reference or base.agent, "", tuple(shown))
