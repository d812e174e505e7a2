# SPDX-License-Identifier: BSD-3-Clause
"""Marks that stand before words: drawn, so that no font must have them, and of different shapes, not colours alone."""

from __future__ import annotations

from kedge.answers.doctor import finding
from kedge.answers.pages.markup import Markup, join_markup, make_element
from kedge.base.frozen import frozen
from kedge.compat import verdict

_SHAPES = {
    "check": "M3 8.6l3.3 3.2L13 4.6",
    "cross": "M4 4l8 8M12 4l-8 8",
    "waves": "M2.5 6.4c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0M2.5 10.8c1.8-2 3.7-2 5.5 0s3.7 2 5.5 0",
    "arrow": "M8 13.2V3.2M3.8 7.2L8 3l4.2 4.2",
    "bolt": "M9.4 2L4.2 8.8h7.2L6.6 14.2",
    "question": "M5.3 5.6a2.7 2.7 0 1 1 4 2.4c-.9.5-1.3 1-1.3 2M8 13.1v.1",
    "exclamation": "M8 2.8v6.4M8 13v.1",
    "letter": "M8 7v6.2M8 3.2v.1",
    "dash": "M4 8h8",
}


@frozen
class MarkStyle:
    """How one outcome or level is shown: shape, tone (a class of the stylesheet) and words."""

    shape: str
    tone: str  # good, fair, other, bad, plain
    word: str
    answer: str = ""  # of an outcome: the short one, above the sentence that says all


_OUTCOME_LOOKS = {
    verdict.NATIVE: MarkStyle("check", "good", "Runs natively", "It runs"),
    verdict.MINOR: MarkStyle("waves", "fair", "Runs by minor-version compatibility", "It runs, with a limit"),
    verdict.FORWARD: MarkStyle(
        "arrow", "other", "Runs by forward compatibility", "It runs, with the image's own driver library"
    ),
    verdict.PTX: MarkStyle("bolt", "fair", "Runs from PTX, compiled at start", "It runs, but starts slowly"),
    verdict.NO: MarkStyle("cross", "bad", "Does not run", "It does not run"),
    verdict.UNKNOWN: MarkStyle("question", "plain", "Unknown", "Unknown whether it runs"),
}
_LEVEL_LOOKS = {
    verdict.FAIL: MarkStyle("cross", "bad", "Problem"),
    verdict.WARNING: MarkStyle("exclamation", "fair", "Warning"),
    verdict.NOTE: MarkStyle("letter", "other", "Note"),
    verdict.OPEN: MarkStyle("question", "plain", "Unknown"),
    verdict.OK: MarkStyle("check", "good", "OK"),
    finding.SKIPPED: MarkStyle("dash", "plain", "Not checked"),
}


def find_outcome_look(outcome: str) -> MarkStyle:
    """How an outcome is shown; any other text counts as unknown."""
    return _OUTCOME_LOOKS.get(outcome, _OUTCOME_LOOKS[verdict.UNKNOWN])


def find_level_look(level: str) -> MarkStyle:
    """How a level is shown."""
    return _LEVEL_LOOKS.get(level, _LEVEL_LOOKS[verdict.OPEN])


def make_mark(look: MarkStyle) -> Markup:
    """The mark before a word. The word says the same, so it is hidden from readers that speak."""
    used = make_element("use", href=f"#mark-{look.shape}")
    return make_element("svg", used, class_=f"mark {look.tone}", viewBox="0 0 16 16", aria_hidden="true")


def draw_marks() -> Markup:
    """Return all shapes, once for each page."""
    symbols = (
        make_element("symbol", make_element("path", d=path), id=f"mark-{name}", viewBox="0 0 16 16")
        for name, path in _SHAPES.items()
    )
    return make_element("svg", join_markup(symbols), class_="shapes", width=0, height=0, aria_hidden="true")
