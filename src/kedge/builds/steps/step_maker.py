# SPDX-License-Identifier: BSD-3-Clause
"""Does the steps of one stage that have no record: runs, copies, writes, and stores what changed as a layer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from kedge.base.tree import ContentSource, Node
from kedge.builds.copies.context import FileOrigin
from kedge.builds.copies.copy_files import CopiedContent, make_copy
from kedge.builds.copies.write_files import make_directory_layer, write_files_layer
from kedge.builds.request import StepLabel
from kedge.builds.states.build_state import BuildState, StepLayer
from kedge.builds.states.roots import PrivateRoot, StageRoot, StepWorkspace
from kedge.builds.step_values import (
    CopyStep,
    DirectoryStep,
    HostScriptStep,
    RunStep,
    Step,
    StepMount,
    WriteFilesStep,
)
from kedge.builds.steps.host_scripts import run_host_step
from kedge.builds.steps.origins import FileOrigins
from kedge.builds.steps.protect import Protection, freeze_packages
from kedge.builds.steps.run_program import refuse_other_machine, run_in_workspace
from kedge.builds.steps.session import BuildSession, StageWaiter
from kedge.container.image_users import ImageUser, find_image_user
from kedge.errors import MountFailed
from kedge.image.layers.overlay_directory import NoOverlayForm
from kedge.image.layers.tar_writer import LayerResult, write_layer

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
