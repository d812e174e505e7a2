# SPDX-License-Identifier: BSD-3-Clause
"""What a stage has become so far, as values: a base, the layers above it, and the history that explains them.

A state is known without any file on a disk. `roots.py` makes directories of it when a step has to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kedge.base.digest import Digest
from kedge.base.frozen import frozen, replace
from kedge.base.manifest import Descriptor
from kedge.builds.bases.bases import OpenedBase
from kedge.builds.cache_keys import state_key


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
