# SPDX-License-Identifier: BSD-3-Clause
"""What a conversion gives back: the new recipe, and a note for all that has no equal in the other kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from kedge.builds.step_values import RecipePlace

MARK_BEGIN, MARK_END = "\ue000", "\ue001"  # around the name of a build argument, while text is on its way


@dataclass(frozen=True, slots=True)
class ConversionNote:
    """Something that the new recipe does not do, or does in another way."""

    place: RecipePlace
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True, slots=True)
class ConvertedRecipe:
    """The new recipe."""

    kind: str  # dockerfile or definition
    text: str
    notes: tuple[ConversionNote, ...] = ()


@dataclass(slots=True)
class NoteTaker:
    """Collects the notes of a conversion; the same one is taken once."""

    file: str
    notes: dict[ConversionNote, None] = field(default_factory=dict)

    def add(self, line: int, message: str) -> list[str]:
        """Take a note; returns it as comment lines for the new recipe."""
        self.notes[ConversionNote(RecipePlace(self.file, max(line, 1)), message)] = None
        return [f"# NOTE: {message}"]


def comment_out(text: str) -> list[str]:
    """The lines as comments."""
    return [f"#   {line.rstrip()}".rstrip() for line in text.strip("\n").split("\n")]
