# SPDX-License-Identifier: BSD-3-Clause
"""A finding of `kedge recipe lint`: where, which rule, how bad, why, and the better line."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen
from kedge.builds.step_values import RecipePlace

WARNING, NOTE = "warning", "note"
LEVELS = (WARNING, NOTE)


@frozen
class LintFinding(JsonValue):
    """One thing to change in a recipe."""

    place: RecipePlace
    rule: str  # its name, as `# kedge: ignore=NAME` takes it
    level: str
    message: str
    reason: str
    better: str = ""  # what to write instead; may have several lines

    def __str__(self) -> str:
        return f"{self.place}: {self.level}: {self.message} [{self.rule}]"
