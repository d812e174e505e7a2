# SPDX-License-Identifier: BSD-3-Clause
"""The findings of checks: what, why and how it is mended; what is in order is folded away."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.doctor.finding import OK, Finding
from kedge.pages.document import make_section
from kedge.pages.markup import Markup, format_sentence, make_element
from kedge.pages.symbols import find_level_look, make_mark
from kedge.pages.verdict_part import make_label, make_level_line, make_point, make_remedy

_MOST_FINDINGS = 60


def make_findings(title: str, findings: Sequence[Finding]) -> Markup | None:
    """A part of the page with one point for each; None where there is none."""
    if not findings:
        return None
    points = (_make_point(each) for each in findings[:_MOST_FINDINGS])
    return make_section(title, make_element("ul", *points, class_="points"), _say_rest(findings))


def make_quiet_findings(findings: Sequence[Finding]) -> Markup | None:
    """What is in order or was not checked, as a table that opens on demand."""
    if not findings:
        return None
    passed = sum(each.level == OK for each in findings)
    skipped = len(findings) - passed
    words = f"{passed} in order" + (f", {skipped} not checked" if skipped else "")
    names = ("Check", "Result", "Found")
    head = make_element("thead", make_element("tr", *(make_element("th", name, scope="col") for name in names)))
    body = make_element("tbody", *(_make_row(each) for each in findings[:_MOST_FINDINGS]))
    table = make_element("table", head, body, class_="facts")
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
