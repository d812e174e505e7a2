# SPDX-License-Identifier: BSD-3-Clause
"""Builds one stage: step after step, each from its record where there is one, else done and recorded.

A chain of records costs a look at one small file per step: no tree is made before a step has to be done. Of two builds
that come to the same step at once, one does it and the other takes its record.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kedge.builds.cache_keys import step_key
from kedge.builds.copies.copy_files import digest_copy
from kedge.builds.definition.settle_files import add_labels
from kedge.builds.request import StepLabel
from kedge.builds.states.build_state import BuildState, StageResult, StepLayer
from kedge.builds.step_values import ConfigStep, CopyStep, HostScriptStep, RunStep, Stage, StagePlan, Step, name_place
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.session import BuildSession, StageWaiter
from kedge.builds.steps.stages import StageCancelled
from kedge.errors import KedgeError
from kedge.image.store.build_steps import StepRecord

if TYPE_CHECKING:
    from kedge.builds.steps.step_maker import StepMaker

# Imports inside the methods below are late for start-up cost: steps that are in the cache need none of them.

_CREATED = "created"  # in a record: seconds


@dataclass(slots=True)
class StageBuilder:
    """One stage, and how far it is."""

    session: BuildSession
    stage: Stage
    origins: FileOrigins
    wait_for: StageWaiter
    title: str = ""  # what a display calls the stage
    state: BuildState = field(init=False)
    _maker: StepMaker | None = None

    def run(self) -> StageResult:
        """Do all steps of the stage and return its result."""
        plan = self.stage.plan(self.open_base())
        for step, label in self.list_steps(plan):
            if label is None:
                self.state = self.state.after(step.text, None)
            else:
                self._do(step, label)
        return StageResult(self.state, plan.section, plan.warnings, plan.is_decorated, plan.author)

    @property
    def maker(self) -> StepMaker:
        """Does the steps that are not in the cache."""
        from kedge.builds.steps.step_maker import StepMaker

        if self._maker is None:
            self._maker = StepMaker(self.session, self.origins, self.wait_for)
        return self._maker

    def list_steps(self, plan: StagePlan) -> list[tuple[Step, StepLabel | None]]:
        """The steps that the request wants; those that change the config alone have no label."""
        labels = self.session.request.labels
        steps = [add_labels(step, labels) for step in plan.steps if self._is_wanted(step)]
        total = sum(not isinstance(step, ConfigStep) for step in steps)
        numbers = itertools.count(1)
        return [
            (step, None if isinstance(step, ConfigStep) else StepLabel(self.title, next(numbers), total, step.text))
            for step in steps
        ]

    def open_base(self) -> Mapping[str, Any]:
        """Begin with the base; returns the `config` object of its image."""
        base = self.stage.base
        if base.stage is not None:
            result = self.wait_for(base.stage)
            self.state = result.state
            return result.section
        try:
            self.state = BuildState(self.session.open_base(base))
        except KedgeError as problem:
            name_place(problem, base.place)
            raise
        return self.state.base.section

    def _is_wanted(self, step: Step) -> bool:
        return self.session.request.tests or not isinstance(step, RunStep) or step.section != "test"

    def _do(self, step: Step, label: StepLabel) -> None:
        for index in _list_origins(step):  # its time begins when what it copies from is there
            self.wait_for(index)
        began = self.session.begin(label)
        try:
            record, is_new = self._find_or_make(step, label)
        except BaseException as problem:
            self.session.end(label, began, "cancelled" if isinstance(problem, StageCancelled) else "failed")
            if isinstance(problem, KedgeError):
                name_place(problem, step.place)
            raise
        layer = self.advance(step, record)
        if layer is not None:
            self.session.mark_layer(layer)
        if is_new:
            self.maker.keep(self.state)
        self.session.end(label, began, "done" if is_new else "cached", layer.descriptor.size if layer else 0)

    def advance(self, step: Step, record: StepRecord) -> StepLayer | None:
        """Go on to the state after a step; returns the layer that it has."""
        layer = StepLayer(record.layer, record.diff_id) if record.layer and record.diff_id else None
        created = record.extra.get(_CREATED)
        self.state = self.state.after(step.text, layer, created=created if isinstance(created, int) else 0)
        return layer

    def make_key(self, step: Step) -> str:
        """The key of a step's record, in the state so far."""
        return step_key(self.state.key, step, self._list_inputs(step), str(self.state.base.config.platform))

    def _find_or_make(self, step: Step, label: StepLabel) -> tuple[StepRecord, bool]:
        """The record of a step, and whether the step was done now."""
        records, is_anew = self.session.store.steps, not self.session.request.use_cache
        key = self.make_key(step)
        known = None if is_anew else records.find(key)
        if known is not None:
            return known, False
        claim = records.claim(key, self.session.workplace.progress.note, is_anew=is_anew)
        if isinstance(claim, StepRecord):
            return claim, False
        with claim:
            layer = self.maker.make(step, self.state, label)
            descriptor, diff_id = (layer.descriptor, layer.diff_id) if layer else (None, None)
            record = StepRecord(key, descriptor, diff_id, step.text, {_CREATED: self.session.now()})
            records.write(record)
        return record, True

    def _list_inputs(self, step: Step) -> dict[str, str]:
        """Digests of what the step reads beside the state."""
        request = self.session.request
        inputs = {} if request.epoch is None else {"epoch": str(request.epoch)}
        if isinstance(step, CopyStep):
            inputs["files"] = self._identify_files(step)
        if isinstance(step, RunStep):
            for mount in step.mounts:
                if mount.kind == "bind":
                    state = self.origins.find_state(mount.origin, self.wait_for, step.place)
                    known = state.key if state else self.origins.digest_mount(mount, step.place)
                    inputs[f"mount {mount.target}"] = known
            inputs["options"] = repr((request.options, request.binds, request.protect))
        if isinstance(step, HostScriptStep):
            from kedge.builds.steps.host_scripts import identify_surroundings

            inputs["host"] = identify_surroundings(self.session, step)
        return inputs

    def _identify_files(self, step: CopyStep) -> str:
        state = self.origins.find_state(step.origin, self.wait_for, step.place)
        if state is not None:
            return state.key
        added = self.session.added if step.is_addition else None
        return digest_copy(step, self.origins.open_host_files(step.origin, step.place), added)


def _list_origins(step: Step) -> list[int]:
    """The stages that a step copies from or mounts."""
    origins = [step.origin] if isinstance(step, CopyStep) else []
    origins += [mount.origin for mount in step.mounts] if isinstance(step, RunStep) else []
    return [origin.stage for origin in origins if origin.stage is not None]
