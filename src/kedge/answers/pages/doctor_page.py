# SPDX-License-Identifier: BSD-3-Clause
"""The page of `kedge doctor`: what keeps containers and jobs from working on this host, and how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kedge.answers.doctor.surroundings import FAIL, LEVELS, NOTE, OK, SKIPPED, WARNING, Finding
from kedge.answers.pages.chart_picture import make_chart_picture
from kedge.answers.pages.document import (
    Imprint,
    MarkStyle,
    Markup,
    find_level_look,
    find_outcome_look,
    fit_page,
    format_sentence,
    make_element,
    make_facts,
    make_mark,
    make_page,
    make_section,
    make_summary,
    make_table,
)
from kedge.answers.pages.layers_picture import make_layers_picture
from kedge.answers.pages.verdict_part import (
    list_judgements,
    make_banner,
    make_label,
    make_level_line,
    make_point,
    make_remedy,
)
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
from kedge.compat.driver_chart import Chart
from kedge.compat.traits import ImageTraits
from kedge.compat.verdict import Verdict

_MOST_FINDINGS = 60


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
    """Return one HTML document that loads nothing. The caller has removed secrets; `made` is when, as it is to be read.

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
        _make_findings("Problems", [each for each in findings if each.level == FAIL]),
        _make_findings("Warnings", [each for each in findings if each.level == WARNING]),
        _make_image_part(image.verdict),
        _make_findings("Notes", [each for each in findings if each.level == NOTE or each.level not in LEVELS]),
        make_summary(summary, "This machine"),
        make_chart_picture(image.chart),
        make_facts(image.traits) if image.traits else None,
        make_layers_picture(image.traits.layers) if image.traits else None,
        _make_quiet_findings([each for each in findings if each.level in (OK, SKIPPED)]),
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


def _make_findings(title: str, findings: Sequence[Finding]) -> Markup | None:
    """A part of the page with one point for each; None where there is none."""
    if not findings:
        return None
    points = (_make_point(each) for each in findings[:_MOST_FINDINGS])
    return make_section(title, make_element("ul", *points, class_="points"), _say_rest(findings))


def _make_quiet_findings(findings: Sequence[Finding]) -> Markup | None:
    """Return what is in order or was not checked, as a table that opens on demand."""
    if not findings:
        return None
    passed = sum(each.level == OK for each in findings)
    skipped = len(findings) - passed
    words = f"{passed} in order" + (f", {skipped} not checked" if skipped else "")
    rows = (_make_row(each) for each in findings[:_MOST_FINDINGS])
    table = make_table(("Check", "Result", "Found"), rows, "facts")
    folded = make_element("details", make_element("summary", words), table, _say_rest(findings))
    return make_section("The other checks", folded)


def _make_point(finding: Finding) -> Markup:
    look = find_level_look(finding.level)
    body = [
        make_level_line(look, finding.check),
        make_element("p", make_element("strong", format_sentence(finding.what)), class_="text"),
        make_element("p", make_label("Why"), format_sentence(finding.why), class_="text") if finding.why else None,
        make_remedy("Fix", finding.fix),
        _make_reference(finding.docs),
    ]
    return make_point(look, body)


def _make_reference(docs: str) -> Markup | None:
    if not docs:
        return None
    return make_element("p", Markup("More: "), make_element("code", docs), class_="quiet small")


def _make_row(finding: Finding) -> Markup:
    look = find_level_look(finding.level)
    word = make_element("span", make_mark(look), Markup(" "), look.word, class_=look.tone)
    found = make_element("td", format_sentence(finding.what), class_="text")
    return make_element("tr", make_element("th", finding.check, scope="row"), make_element("td", word), found)


def _say_rest(findings: Sequence[Finding]) -> Markup | None:
    rest = len(findings) - _MOST_FINDINGS
    return make_element("p", f"{rest} more are not shown.", class_="quiet") if rest > 0 else None
