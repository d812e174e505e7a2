# SPDX-License-Identifier: BSD-3-Clause
"""The directory of one build on this node: roots that steps write to, and files that are there for one step only.

It goes with the build. Those of builds that were killed go with the next one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import Descriptor
from kedge.builds.bases.bases import OpenedBase
from kedge.builds.cache_keys import state_key
from kedge.image.node.node_cache_writer import NodeCache
from kedge.image.node_cache import ROOT, hold_image, node_directory
from kedge.image.workplace import Workplace
from kedge.system.files import explained
from kedge.system.foreign_trees import remove_with_foreign
from kedge.system.host.space import require_space
from kedge.system.owned_names import own_name, owner_is_gone

COPIES = "kedge-bind"  # of what a step may change, and nobody keeps
_BUILDS = "builds"
_LABEL = "build"
_LEAST_ROOM = 64 << 20  # bytes, before a step begins
_CHOICE = "KEDGE_NODEDIR={}/kedge-$USER"


class BuildPlace:
    """A context manager; nothing is made before it is asked for."""

    def __init__(self, workplace: Workplace) -> None:
        self.node = NodeCache(workplace.settings, workplace.progress)
        self._temporary = workplace.settings.temporary_directory
        self._folder: Path | None = None
        self._count = 0
        self._held: dict[Path, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> BuildPlace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held.clear()
        if self._folder is not None:
            remove_with_foreign(self._folder)
            self._folder = None

    def make_folder(self, label: str) -> Path:
        """A new, empty directory for this build alone."""
        with self._lock:
            if self._folder is None:
                self._folder = self._begin()
            self._count += 1
            path = self._folder / f"{label}-{self._count}"
        with explained(path):
            path.mkdir(mode=0o700)
        return path

    def _begin(self) -> Path:
        builds = Path(node_directory(self.node.environ)) / _BUILDS
        with explained(builds):
            builds.mkdir(mode=0o700, exist_ok=True)
            _sweep(builds)
            _sweep(self._temporary, COPIES)
            path = builds / own_name(_LABEL)
            path.mkdir(mode=0o700)
        return path

    def require_room(self, what: str) -> None:
        """Raise NoSpace before a step that could only fail."""
        require_space(self.node.place, _LEAST_ROOM, what, self.node.environ, choice=_CHOICE)

    def find_held(self, identity: str) -> Path | None:
        """The root of an image that this build holds: nobody can have removed it."""
        root = self.node.images / identity / ROOT
        return root if root in self._held else None

    def hold(self, root: Path) -> bool:
        """Keep an image of the node cache from being removed until the build ends; False if it is gone.

        A directory elsewhere is the user's own sandbox.
        """
        with self._lock:
            if root in self._held or not root.is_relative_to(self.node.images):
                return True
            descriptor = hold_image(str(root))
            if descriptor >= 0:
                self._held[root] = descriptor
            return descriptor >= 0


def _sweep(folder: Path, label: str = _LABEL) -> None:
    """Remove what killed builds left."""
    with contextlib.suppress(OSError):
        for left in folder.glob(f"{label}.*"):
            if left.lstat().st_uid == os.geteuid() and owner_is_gone(left.name):
                remove_with_foreign(left)


@contextlib.contextmanager
def passing_folder(place: Path, label: str) -> Iterator[Path]:
    """A directory outside of the node cache, for one step alone: what containers see of the node cache is read-only."""
    with explained(place):
        folder = place / own_name(label)
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove_with_foreign(folder)


# What a stage has become so far, as values: a base, the layers above it, and the history that explains them.
#
# A state is known without any file on a disk. `roots.py` makes directories of it when a step has to run.


@frozen
class StepLayer:
    """The layer that a step made."""

    descriptor: Descriptor
    diff_id: Digest


@frozen
class BuildState:
    """A base and what the steps so far have changed."""

    base: OpenedBase
    layers: tuple[StepLayer, ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    created: int = 0  # seconds: when the youngest step ran; of the base, if none did

    @property
    def key(self) -> str:
        """Equal for states with the same files."""
        return state_key(self.base.key, (str(layer.diff_id) for layer in self.layers))

    def after(self, text: str, layer: StepLayer | None, *, created: int = 0) -> BuildState:
        """The state after a step that people know as `text`; a step that changes no file has no layer."""
        entry: dict[str, Any] = {"created_by": text}
        if layer is None:
            entry["empty_layer"] = True
        return replace(
            self,
            layers=(*self.layers, layer) if layer else self.layers,
            history=(*self.history, entry),
            created=max(self.created, created),
        )


@frozen
class StageResult:
    """A stage that is done: its files, and the `config` object of its image."""

    state: BuildState
    section: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    is_decorated: bool = False  # the steps wrote `/.singularity.d` themselves
    author: str = ""  # MAINTAINER
