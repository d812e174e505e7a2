# SPDX-License-Identifier: BSD-3-Clause
"""What all stages of one build share: the request, the cache, directories, the log, and whom steps are shown to."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.builds.bases.bases import OpenedBase, open_base
from kedge.builds.bases.named_contexts import name_local_base, settle_context
from kedge.builds.host_reach import HostReach
from kedge.builds.request import BuildDisplay, BuildRequest, BuildSecret, StepLabel, StepOutcome
from kedge.builds.states.build_place import BuildPlace, StageResult, StepLayer
from kedge.builds.step_values import Base
from kedge.builds.steps.build_log import BuildLog, StepOutput
from kedge.builds.steps.stages import Cancellation
from kedge.errors import UsageError
from kedge.image.store.store import Store
from kedge.image.workplace import Workplace
from kedge.system.files import explained

if TYPE_CHECKING:
    from kedge.builds.copies.added_files import AddedFiles
    from kedge.builds.copies.git_repositories import GitAccess
    from kedge.builds.states.roots import NodeDirectories, StageRoot

# Imports inside the methods below are late for start-up cost: a build whose steps are all in the cache needs none.

_MAXIMUM_SECRET = 512 << 10  # bytes, as BuildKit has it


@dataclass(slots=True)
class BuildSession:
    """One build; its methods may be called from the threads of several stages."""

    request: BuildRequest
    workplace: Workplace
    store: Store
    display: BuildDisplay
    place: BuildPlace
    log: BuildLog
    context: Path
    recipe_path: Path | None
    reach: HostReach
    outcomes: list[StepOutcome] = field(default_factory=list)
    cancellation: Cancellation = field(default_factory=Cancellation)
    marks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    locked: Mapping[str, str] = field(default_factory=dict)  # digests of bases that the lock file names
    bases: list[OpenedBase] = field(default_factory=list)
    layers: list[StepLayer] = field(default_factory=list)  # of all steps so far
    makes: bool = True  # False in a dry run: bases that a program makes, or that are fetched whole, stay unknown
    lacks_overlay: str = ""  # why steps run in private directories
    _added: AddedFiles | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def added(self) -> AddedFiles:
        """What ADD fetches and unpacks."""
        from kedge.builds.copies.added_files import AddedFiles

        with self._lock:
            if self._added is None:
                added = AddedFiles(self.workplace, self.store, self._choose_git_access(), fetches=self.makes)
                self._added = self.marks.enter_context(added)
            return self._added

    def _choose_git_access(self) -> GitAccess:
        """What the command line lends to git: --ssh, and tokens that are named after their host."""
        from kedge.builds.copies.git_repositories import TOKEN_SECRET, GitAccess
        from kedge.image.registry.secret import Secret

        tokens = {
            secret.id.removeprefix(TOKEN_SECRET).lower(): Secret(os.fsdecode(read_secret(secret)).strip())
            for secret in self.request.secrets
            if secret.id.startswith(TOKEN_SECRET)
        }
        return GitAccess(bool(self.request.ssh), tokens)

    @property
    def directories(self) -> NodeDirectories:
        """Bases and layers on this node."""
        from kedge.builds.states.roots import NodeDirectories

        return NodeDirectories(self.place, self.store)

    def make_root(self) -> StageRoot:
        """Where the steps of a stage run."""
        from kedge.builds.states.roots import OverlayRoot, PrivateRoot

        return PrivateRoot(self.directories) if self.lacks_overlay else OverlayRoot(self.directories)

    def leave_overlays(self, problem: Exception) -> None:
        """Go on with private directories: this host has no overlays."""
        self.lacks_overlay = str(problem) or type(problem).__name__
        self.workplace.progress.detail(f"steps run in private directories: {self.lacks_overlay}")

    def open_base(self, base: Base) -> OpenedBase:
        """What a stage begins with; a path that the recipe names must be a root file system, and is shown."""
        settled = settle_context(base, self.request.contexts)
        if settled is base:
            name_local_base(base, self.workplace.progress, self.reach)
        return self.open_origin(settled)

    def open_origin(self, base: Base) -> OpenedBase:
        """An image that the caller has settled."""
        opened = open_base(
            base, self.workplace, self.store, policy=self.request.pull, lock=self.locked, makes=self.makes
        )
        self.marks.callback(opened.close)
        self.bases.append(opened)
        return opened

    def now(self) -> int:
        """The time that new files and records carry."""
        return int(time.time()) if self.request.epoch is None else self.request.epoch

    def mark_layer(self, layer: StepLayer) -> None:
        """Keep a layer in the cache until the build ends."""
        self.marks.enter_context(self.store.steps.use_layer(layer.descriptor))
        self.layers.append(layer)

    def drop_damaged_layers(self) -> bool:
        """Hash all layers of the build, and take the damaged ones out of the cache; whether there were any."""
        return not all([self.store.blobs.check(layer.descriptor) for layer in self.layers])

    # -- telling

    def begin(self, label: StepLabel) -> float:
        """A step begins; the time, for `end`."""
        self.cancellation.check()
        self.display.begin(label)
        return time.monotonic()

    def end(self, label: StepLabel, began: float, state: str, size: int = 0) -> None:
        """A step has ended: done, cached, failed or cancelled."""
        outcome = StepOutcome(label, time.monotonic() - began, state, size)
        self.outcomes.append(outcome)
        self.display.end(outcome)

    def open_output(self, label: StepLabel) -> StepOutput:
        """Where what a step prints goes."""
        return StepOutput(label, self.log, self.display.output, self.read_secrets())

    # -- secrets

    def find_secret(self, name: str) -> BuildSecret | None:
        """The secret with that id."""
        return next((secret for secret in self.request.secrets if secret.id == name), None)

    def read_secrets(self) -> list[bytes]:
        """The values of all secrets, which no log may show."""
        return [value for secret in self.request.secrets for value in read_secret(secret).splitlines()]


def read_secret(secret: BuildSecret) -> bytes:
    """The value of a secret."""
    if secret.path is None:
        value = os.environ.get(secret.variable)
        if value is None:
            raise UsageError(
                f"the secret '{secret.id}' is to come from the variable {secret.variable}, which is not set",
                hint=f"export {secret.variable}, or name a file: --secret id={secret.id},src=FILE",
            )
        return os.fsencode(value)
    with explained(secret.path), secret.path.open("rb") as file:
        data = file.read(_MAXIMUM_SECRET + 1)
    if len(data) > _MAXIMUM_SECRET:
        raise UsageError(f"the secret '{secret.id}' in {secret.path} is larger than 512 KiB")
    return data


StageWaiter = Callable[[int], StageResult]
