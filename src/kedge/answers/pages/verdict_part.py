# SPDX-License-Identifier: BSD-3-Clause
"""The verdict as the first thing that is read, and the judgements it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.answers.pages.document import (
    MarkStyle,
    Markup,
    clean_text,
    find_level_look,
    find_outcome_look,
    format_advice,
    format_sentence,
    join_markup,
    make_element,
    make_mark,
)
from kedge.compat.verdict import FAIL, NOTE, OK, OPEN, WARNING, Judgement, Verdict

_ORDER = (FAIL, WARNING, NOTE, OPEN, OK)
_MOST_JUDGEMENTS = 40
_SUBJECTS = {
    "driver": "Driver",
    "gpu": "GPU",
    "requirement": "What the image demands",
    "processor": "CPU",
    "glibc": "C library",
    "mpi": "MPI",
    "image": "Image",
}
_NOT_JUDGED = MarkStyle("question", "plain", "Not judged")


def make_verdict_banner(verdict: Verdict | None) -> Markup:
    """Return one big sentence with its mark."""
    if verdict is None:
        return make_banner(_NOT_JUDGED, "No machine to judge it against is known.", "The facts of the image are below.")
    return make_banner(find_outcome_look(verdict.outcome), verdict.headline, "")


def make_banner(look: MarkStyle, sentence: str, more: str) -> Markup:
    """A mark, a word and a sentence that can be read from afar."""
    text = clean_text(sentence)
    body = make_element(
        "div",
        make_element("h2", look.answer or look.word, class_=look.tone),
        make_element("p", format_sentence(text[:1].upper() + text[1:]), class_="headline text"),
        make_element("p", format_sentence(more)) if more else None,
        class_="body",
    )
    return make_element("section", make_mark(look), body, class_=f"verdict {look.tone}", id="verdict")


def make_judgements(verdict: Verdict | None) -> Markup | None:
    """Reasons and remedies, the worst first."""
    if verdict is None or not verdict.judgements:
        return None
    heading = make_element("h2", "Why, and what to do")
    return make_element("section", heading, list_judgements(verdict))


def list_judgements(verdict: Verdict) -> Markup:
    """The judgements as points: the worst first, and first of all what the answer waits for."""
    ranks = {level: rank for rank, level in enumerate(_ORDER)}
    if verdict.runs is None:
        ranks[OPEN] = -1
    ordered = sorted(verdict.judgements, key=lambda each: ranks.get(each.level, len(ranks)))
    return make_element("ul", *(_make_point(each) for each in ordered[:_MOST_JUDGEMENTS]), class_="points")


def _make_point(judgement: Judgement) -> Markup:
    subject = _SUBJECTS.get(judgement.subject, judgement.subject)
    body = [
        make_level_line(find_level_look(judgement.level), subject),
        make_element("p", format_sentence(judgement.sentence), class_="text"),
        make_remedy("What to do", judgement.remedy),
    ]
    return make_point(find_level_look(judgement.level), body)


def make_level_line(look: MarkStyle, subject: str) -> Markup:
    """`Problem: Driver`."""
    return make_element("h3", make_element("span", look.word, class_=f"level {look.tone}"), Markup(": "), subject)


def make_point(look: MarkStyle, body: Sequence[Markup | None]) -> Markup:
    """Return one entry of a list of points."""
    return make_element("li", make_mark(look), make_element("div", join_markup(body), class_="body"))


def make_remedy(label: str, text: str) -> Markup | None:
    """What to do, set apart; None where nothing is."""
    if not text:
        return None
    return make_element("div", make_element("div", label, class_="quiet small"), format_advice(text), class_="remedy")


def make_label(word: str) -> Markup:
    """A small word before a sentence that says what the sentence is."""
    return make_element("span", make_element("span", word, class_="quiet"), Markup(": "))
