# SPDX-License-Identifier: BSD-3-Clause
"""Builds one stage: step after step, each from its record where there is one, else done and recorded.

A chain of records costs a look at one small file per step: no tree is made before a step has to be done. Of two builds
that come to the same step at once, one does it and the other takes its record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kedge.errors import MountFailed
from kedge.layers.overlay_directory import NoOverlayForm
from kedge.layers.tar_writer import LayerResult, write_layer
from kedge.model.tree import ContentSource, Node
from kedge.ops.build.build_state import BuildState, StageResult, StepLayer
from kedge.ops.build.copy_files import CopiedContent, digest_copy, make_copy
from kedge.ops.build.merged_view import MergedView
from kedge.ops.build.origins import FileOrigins
from kedge.ops.build.protect import Protection, freeze_packages
from kedge.ops.build.request import StepLabel
from kedge.ops.build.roots import StageRoot, StepWorkspace
from kedge.ops.build.run_program import run_in_workspace
from kedge.ops.build.session import BuildSession, StageWaiter
from kedge.ops.build.write_files import make_directory_layer, write_files_layer
from kedge.recipe.cache_keys import step_key
from kedge.recipe.steps import (
    ConfigStep,
    CopyStep,
    DirectoryStep,
    HostScriptStep,
    RunStep,
    Stage,
    Step,
    WriteFilesStep,
)
from kedge.store.build_steps import StepRecord
from kedge.store.lease import Lease

_CREATED = "created"  # in a record: seconds
_LEFT_OUT = frozenset({b".post.script"})


@dataclass(slots=True)
class StageBuilder:
    """One stage, and how far it is."""

    session: BuildSession
    stage: Stage
    origins: FileOrigins
    wait_for: StageWaiter
    state: BuildState = field(init=False)
    _root: StageRoot | None = None
    _protection: Protection | None = None

    def run(self) -> StageResult:
        """All of its steps."""
        first = self._open_base()
        plan = self.stage.plan(first)
        steps = [step for step in plan.steps if is_wanted(step, self.session)]
        total = 1 + sum(not isinstance(step, ConfigStep) for step in steps)
        number = 1
        self._tell_base(total)
        for step in steps:
            if isinstance(step, ConfigStep):
                self.state = self.state.after(step.text, None)
                continue
            number += 1
            self._do(step, StepLabel(self._name, number, total, step.text))
        return StageResult(self.state, plan.section, plan.warnings, plan.is_decorated)

    @property
    def _name(self) -> str:
        return self.stage.name or str(self.stage.index)
