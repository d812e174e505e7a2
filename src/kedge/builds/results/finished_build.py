# SPDX-License-Identifier: BSD-3-Clause
"""A build whose steps are done, as a value: what its image is made of, and by which key the cache knows it."""

from __future__ import annotations

import hashlib
import json

from kedge.base.frozen import frozen
from kedge.builds.states.build_state import StageResult
from kedge.builds.step_values import Recipe

_CONFIG_VERSION = 2  # raise it when the written config or manifest change


@frozen
class FinishedBuild:
    """The target stage and what is known of the whole build."""

    result: StageResult
    recipe: Recipe
    note: str  # JSON: what the image says of its build
    created: int

    @property
    def key(self) -> str:
        """Equal for builds that give the same image."""
        state = self.result.state
        parts = [_CONFIG_VERSION, state.key, state.base.key, self.result.section, list(map(dict, state.history))]
        text = json.dumps([*parts, self.result.author, self.recipe.text, self.note, self.created], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
