# SPDX-License-Identifier: BSD-3-Clause
"""Builds one stage: step after step, each from its record where there is one, else done and recorded.

A chain of records costs a look at one small file per step: no tree is made before a step has to be done. Of two builds
that come to the same step at once, one does it and the other takes its record.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from kedge.base.tree import ContentSource, Node
from kedge.builds.cache_keys import step_key
from kedge.builds.copies.context import FileOrigin
from kedge.builds.copies.copy_files import CopiedContent, digest_copy, make_copy
from kedge.builds.copies.copy_layer import make_directory_layer, write_files_layer
from kedge.builds.definition.settle_files import add_labels
from kedge.builds.request import StepLabel
from kedge.builds.states.build_place import BuildState, StageResult, StepLayer
from kedge.builds.states.roots import PrivateRoot, StageRoot, StepWorkspace
from kedge.builds.step_values import (
    ConfigStep,
    CopyStep,
    DirectoryStep,
    HostScriptStep,
    RunStep,
    Stage,
    StagePlan,
    Step,
    StepMount,
    WriteFilesStep,
    name_place,
)
from kedge.builds.steps.host_scripts import run_host_step
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.run_program import Protection, freeze_packages, refuse_other_machine, run_in_workspace
from kedge.builds.steps.session import BuildSession, StageWaiter
from kedge.builds.steps.stages import StageCancelled
from kedge.container.image_users import ImageUser, find_image_user
from kedge.errors import KedgeError, MountFailed
from kedge.image.layers.overlay_directory import NoOverlayForm
from kedge.image.layers.tar_writer import LayerResult, write_layer
from kedge.image.store.build_steps import StepRecord

# Does the steps of one stage that have no record: runs, copies, writes, and stores what changed as a layer.

_COMPRESSION, _LEVEL = "zstd", 1  # a third of the time of zstd's usual level, and about as small as gzip


@dataclass(slots=True)
class StepMaker:
    """What a stage needs to do its steps; trees are made when the first one asks."""

    session: BuildSession
    origins: FileOrigins
    wait_for: StageWaiter
    _root: StageRoot | None = None
    _protection: Protection | None = None
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _workspace: StepWorkspace | None = None

    def make(self, step: Step, state: BuildState, label: StepLabel) -> StepLayer | None:
        """Do a step; returns its layer, None if it changed nothing."""
        try:
            return self._make(step, state, label)
        except (NoOverlayForm, MountFailed) as problem:
            if isinstance(self._root, PrivateRoot):
                raise
            self.session.leave_overlays(problem)
            self._root = None
            return self._make(step, state, label)

    def keep(self, state: BuildState) -> None:
        """The state has the layer of the step that was done last."""
        if self._workspace is not None:
            self._workspace.keep(state)
        self._close()

    def _close(self) -> None:
        self._workspace = None
        self._open.close()

    @property
    def root(self) -> StageRoot:
        """Makes trees for this stage."""
        if self._root is None:
            self._root = self.session.make_root()
        return self._root

    def _make(self, step: Step, state: BuildState, label: StepLabel) -> StepLayer | None:
        match step:
            case RunStep():
                return self._run(step, state, label)
            case CopyStep():
                return self._copy(step, state)
            case DirectoryStep():
                tree = make_directory_layer(step, self.root.view(state), self.session.now())
                return self._store(tree, CopiedContent())
            case WriteFilesStep():
                base = (state.base.reference.removeprefix("docker://"), state.base.digest)
                tree = write_files_layer(step, self.root.view(state), self.session.now(), base=base)
                return self._store(tree, CopiedContent())
            case HostScriptStep():
                return self._run_host(step, state, label)
            case _:
                return None

    def _copy(self, step: CopyStep, state: BuildState) -> StepLayer | None:
        added = self.session.added if step.is_addition else None
        origin = self._open_origin(step)
        with contextlib.closing(origin.view), contextlib.closing(self.root.view(state)) as view:
            tree, source = make_copy(step, origin, view, added)
            return self._store(tree, source)

    def _run(self, step: RunStep, state: BuildState, label: StepLabel) -> StepLayer | None:
        refuse_other_machine(state.base.config.platform, step)
        self.session.place.require_room(f"the step {label.text.splitlines()[0]}" if label.text else "the step")
        with contextlib.ExitStack() as opened:
            workspace = opened.enter_context(self.root.open(state))

            def find_folder(mount: StepMount) -> Path:
                return self.origins.find_folder(mount, self.wait_for, step.place)

            protection = self._freeze(state) if self.session.request.protect else None
            run_in_workspace(self.session, step, workspace, label, find_folder=find_folder, protection=protection)
            if step.section == "test":
                return None
            if protection is not None:
                protection.check(workspace.view(), step.place, step.text)
            return self._take_changes(workspace, opened, step.user)

    def _run_host(self, step: HostScriptStep, state: BuildState, label: StepLabel) -> StepLayer | None:
        """A script of the host's programs; one that runs on the host itself needs the image as a directory."""
        root = PrivateRoot(self.session.directories) if self.session.request.uses_host else self.root
        with contextlib.ExitStack() as opened:
            workspace = opened.enter_context(root.open(state))
            run_host_step(self.session, step, workspace, label)
            return self._take_changes(workspace, opened)

    def _take_changes(self, workspace: StepWorkspace, opened: contextlib.ExitStack, user: str = "") -> StepLayer | None:
        """The layer of what a step wrote as a user of the image."""
        maker = find_image_user(user, workspace.view()) if user else ImageUser(0, 0)
        tree, source = workspace.read_changes(frozenset(), (maker.uid, maker.gid))
        with contextlib.closing(source):
            layer = self._store(tree, source)
        if layer is not None:  # `keep` needs the tree
            self._workspace = workspace
            self._open = opened.pop_all()
        return layer

    def _freeze(self, state: BuildState) -> Protection:
        """The packages of the base, before the first step of the stage runs."""
        if self._protection is None:
            environment = dict(entry.partition("=")[::2] for entry in state.base.config.environment)
            self._protection = freeze_packages(self.root.view(BuildState(state.base)), environment)
        return self._protection

    def _open_origin(self, step: CopyStep) -> FileOrigin:
        state = self.origins.find_state(step.origin, self.wait_for, step.place)
        if state is None:
            return self.origins.open_host_files(step.origin, step.place)
        return FileOrigin(self.session.make_root().view(state), state.key, state.base.reference or "the stage")

    def _store(self, tree: Node, source: ContentSource) -> StepLayer | None:
        """The layer of a tree, in the cache."""
        if not tree.children:
            return None
        tree.layer = -1  # the root itself is the base's
        epoch = self.session.request.epoch
        threads = max(self.session.workplace.threads, 2)  # one alone would give other bytes

        def write(file: BinaryIO) -> LayerResult:
            return write_layer(
                tree, source, file, _COMPRESSION, threads=threads, level=_LEVEL, holds_whiteouts=True, epoch=epoch
            )

        descriptor, diff_id = self.session.store.add_layer(write)
        return StepLayer(descriptor, diff_id)


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
