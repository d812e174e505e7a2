# SPDX-License-Identifier: BSD-3-Clause
"""The page of `kedge doctor`: what keeps containers and jobs from working on this host, and how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kedge.compat.driver_chart import Chart
from kedge.compat.image.traits import ImageTraits
from kedge.compat.verdict import Verdict
from kedge.doctor.finding import FAIL, LEVELS, NOTE, OK, SKIPPED, WARNING, Finding
from kedge.frozen import frozen
from kedge.model.counting import count_things
from kedge.pages.chart_picture import make_chart_picture
from kedge.pages.document import Imprint, fit_page, make_page, make_section
from kedge.pages.facts_part import make_facts, make_summary
from kedge.pages.findings_part import make_findings, make_quiet_findings
from kedge.pages.layers_picture import make_layers_picture
from kedge.pages.markup import Markup, format_sentence, make_element
from kedge.pages.symbols import MarkStyle, find_outcome_look, make_mark
from kedge.pages.verdict_part import list_judgements, make_banner


@frozen
class _Image:
    """What was asked about one image besides the machine."""

    verdict: Verdict | None
    traits: ImageTraits | None
    chart: Chart | None


def render_diagnosis(
    findings: Sequence[Finding],
    *,
    title: str,
    tally: str,
    summary: Mapping[str, str],
    verdict: Verdict | None = None,
    traits: ImageTraits | None = None,
    chart: Chart | None = None,
    made: str,
    version: str,
) -> str:
    """One HTML document that loads nothing. The caller has removed secrets; `made` is when, as it is to be read.

    `tally` counts checks, problems and warnings in the words that the terminal shows.
    """
    image = _Image(verdict, traits, chart)
    return fit_page(_make_page, (title, tally), tuple(findings), summary, image, Imprint(made, version))


def _make_page(
    heading: tuple[str, str],
    findings: Sequence[Finding],
    summary: Mapping[str, str],
    image: _Image,
    imprint: Imprint,
) -> str:
    title, tally = heading
    parts = [
        _make_banner(findings, tally, image.verdict),
        make_findings("Problems", [each for each in findings if each.level == FAIL]),
        make_findings("Warnings", [each for each in findings if each.level == WARNING]),
        _make_image_part(image.verdict),
        make_findings("Notes", [each for each in findings if each.level == NOTE or each.level not in LEVELS]),
        make_summary(summary, "This machine"),
        make_chart_picture(image.chart),
        make_facts(image.traits) if image.traits else None,
        make_layers_picture(image.traits.layers) if image.traits else None,
        make_quiet_findings([each for each in findings if each.level in (OK, SKIPPED)]),
    ]
    return make_page(title, "kedge doctor", parts, imprint)


def _make_banner(findings: Sequence[Finding], tally: str, verdict: Verdict | None) -> Markup:
    """The worse of two answers as the sentence, the other one below it."""
    counts = Counter(each.level for each in findings)
    failed, warned = count_things(counts[FAIL], "problem"), count_things(counts[WARNING], "warning")
    words = " and ".join(text for text, level in ((failed, FAIL), (warned, WARNING)) if counts[level])
    more = f"{tally}."
    if verdict is not None and verdict.runs is False:
        more = f"Of this machine: {words or 'nothing that kedge looks for is wrong'}. {more}"
        return make_banner(find_outcome_look(verdict.outcome), verdict.headline, more)
    if verdict is not None:
        more += f" The image: {verdict.headline}."
    if counts[FAIL]:
        return make_banner(MarkStyle("cross", "bad", "Something does not work"), words, more)
    if counts[WARNING]:
        return make_banner(MarkStyle("exclamation", "fair", "It works, with limits"), words, more)
    return make_banner(MarkStyle("check", "good", "All in order"), "nothing that kedge looks for is wrong here", more)


def _make_image_part(verdict: Verdict | None) -> Markup | None:
    """The verdict on the image, below what is wrong with the machine."""
    if verdict is None:
        return None
    look = find_outcome_look(verdict.outcome)
    words = make_element("p", make_mark(look), Markup(" "), make_element("strong", look.word, class_=look.tone))
    headline = make_element("p", format_sentence(verdict.headline), class_="text")
    return make_section(f"The image {verdict.image}".rstrip(), words, headline, list_judgements(verdict))
