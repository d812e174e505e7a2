# SPDX-License-Identifier: BSD-3-Clause
"""The page of `kedge image size`: a picture of the directories, what can go, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kedge.answers.pages.document import Imprint, fit_page, make_page, make_section, make_table
from kedge.answers.pages.layers_picture import make_layers_picture
from kedge.answers.pages.markup import Markup, format_sentence, make_element
from kedge.answers.pages.symbols import MarkStyle
from kedge.answers.pages.treemap_picture import draw_treemap
from kedge.answers.pages.verdict_part import make_banner, make_level_line, make_point, make_remedy
from kedge.base.counting import count_things
from kedge.base.size import format_size
from kedge.compat.contents.size_report import Saving, SizeReport, SizeShare
from kedge.compat.traits import Layer

_MOST_ROWS = 25
_CAN_GO, _OPTIONAL = MarkStyle("exclamation", "fair", "Can go"), MarkStyle("letter", "other", "Optional")
_CLEAN = MarkStyle("check", "good", "Nothing is left behind")


def render_size(report: SizeReport, *, made: str, version: str) -> str:
    """Return one HTML document that loads nothing; `made` is when, as it is to be read."""
    return fit_page(_make_page, report, Imprint(made, version))


def _make_page(report: SizeReport, imprint: Imprint) -> str:
    layers = [Layer(layer.stored, layer.digest, layer.created_by) for layer in report.layers]
    packages = [SizeShare(f"{p.name} {p.version} ({p.manager})", p.size) for p in report.packages if p.size]
    copies = [SizeShare("  ".join(group.paths), group.wasted, group.count) for group in report.duplicates]
    parts = [
        _make_banner(report),
        _make_savings(report.savings),
        make_section("Directories", make_element("div", draw_treemap(report.directories, "Directories by size"))),
        _list_shares("Directory", report.directories, report.size),
        make_layers_picture(layers),
        _list_shares("Package manager", report.managers, report.size),
        _list_shares("Package", packages, report.size),
        _list_shares("File type", report.types, report.size),
        _list_shares("Files with the same contents", copies, report.size),
    ]
    return make_page(report.name, "kedge image size", parts, imprint)


def _make_banner(report: SizeReport) -> Markup:
    stored = f", {format_size(report.stored)} stored" if report.stored else ""
    sentence = f"{format_size(report.size)} in {count_things(report.files, 'file')}{stored}"
    sure = sum(saving.size for saving in report.savings if not saving.is_optional)
    if not sure:
        return make_banner(_CLEAN, sentence, "")
    return make_banner(_CAN_GO, f"{format_size(sure)} can go without loss", f"The image has {sentence}.")


def _make_savings(savings: Sequence[Saving]) -> Markup | None:
    if not savings:
        return None
    points = (_make_saving(saving) for saving in savings)
    return make_section("What can go, and how", make_element("ul", *points, class_="points"))


def _make_saving(saving: Saving) -> Markup:
    look = _OPTIONAL if saving.is_optional else _CAN_GO
    count = f" in {count_things(saving.files, 'file')}" if saving.files else ""
    words = f"{format_size(saving.size)}{count}. {saving.note[:1].upper()}{saving.note[1:]}".strip()
    examples = "For example " + ", ".join(saving.examples) if saving.examples else ""
    body = [
        make_level_line(look, saving.title),
        make_element("p", format_sentence(words), class_="text"),
        make_element("p", examples, class_="small quiet text") if examples else None,
        make_remedy("Write in the recipe", "\n".join(f"    {line}" for line in saving.better.splitlines())),
    ]
    return make_point(look, body)


def _list_shares(title: str, shares: Sequence[SizeShare], total: int) -> Markup | None:
    if not shares:
        return None
    rows = (make_element("tr", *_list_cells(share, total)) for share in shares[:_MOST_ROWS])
    table = make_table(("Size", "Share", title), rows, "matrix")
    more = f"{len(shares) - _MOST_ROWS} more, each smaller" if len(shares) > _MOST_ROWS else None
    return make_section(f"By {title[:1].lower()}{title[1:]}", table, make_element("p", more) if more else None)


def _list_cells(share: SizeShare, total: int) -> Iterable[Markup]:
    yield make_element("td", format_size(share.size))
    yield make_element("td", f"{100 * share.size / max(total, 1):.1f} %")
    yield make_element("td", share.name, class_="code text")
