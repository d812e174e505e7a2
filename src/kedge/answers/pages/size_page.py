# SPDX-License-Identifier: BSD-3-Clause
"""The page of `kedge image size`: a picture of the directories, what can go, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kedge.answers.pages.document import (
    Imprint,
    MarkStyle,
    Markup,
    clean_text,
    fit_page,
    format_sentence,
    make_element,
    make_page,
    make_section,
    make_table,
)
from kedge.answers.pages.layers_picture import make_layers_picture
from kedge.answers.pages.verdict_part import make_banner, make_level_line, make_point, make_remedy
from kedge.base.counting import count_things
from kedge.base.frozen import frozen
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


# A picture of the directories of an image: rectangles whose areas are their sizes, as square as can be.

_WIDTH, _HEIGHT = 960.0, 420.0
_LETTER, _LINE = 6.6, 14.0  # the room of a letter and of a line
# a tone of the stylesheet, and the class of the letters on it
_TONES = (("bar1", "light"), ("bar5", "dark"), ("bar2", "light"), ("bar6", "dark"))


@frozen
class PlacedShare:
    """A part and its rectangle."""

    share: SizeShare
    x: float
    y: float
    width: float
    height: float


def place_shares(shares: Sequence[SizeShare], width: float = _WIDTH, height: float = _HEIGHT) -> list[PlacedShare]:
    """Fill a rectangle, largest first: rows along the shorter side, each as long as it stays near to squares."""
    left = [share for share in sorted(shares, key=lambda share: -share.size) if share.size > 0]
    total = sum(share.size for share in left)
    x = y = 0.0
    placed: list[PlacedShare] = []
    while left:
        scale = width * height / max(total, 1)
        side = min(width, height)
        count = 1
        while count < len(left) and _worst(left[: count + 1], scale, side) <= _worst(left[:count], scale, side):
            count += 1
        row, left = left[:count], left[count:]
        size = sum(share.size for share in row)
        depth = size * scale / side if side else 0.0
        placed += _place_row(row, (x, y), depth, side, is_column=width >= height)
        if width >= height:
            x, width = x + depth, width - depth
        else:
            y, height = y + depth, height - depth
        total -= size
    return placed


def _place_row(
    row: Sequence[SizeShare], corner: tuple[float, float], depth: float, side: float, *, is_column: bool
) -> Iterator[PlacedShare]:
    x, y = corner
    total = sum(share.size for share in row)
    for share in row:
        length = side * share.size / total
        if is_column:
            yield PlacedShare(share, x, y, depth, length)
            y += length
        else:
            yield PlacedShare(share, x, y, length, depth)
            x += length


def _worst(row: Sequence[SizeShare], scale: float, side: float) -> float:
    """How far the worst rectangle of a row is from a square."""
    area = sum(share.size for share in row) * scale
    if not area or not side:
        return float("inf")
    largest, smallest = row[0].size * scale, row[-1].size * scale
    return max(side * side * largest / (area * area), area * area / (side * side * max(smallest, 1e-9)))


def draw_treemap(shares: Sequence[SizeShare], title: str) -> Markup:
    """The picture; every rectangle says its name and size, and large ones show them."""
    drawn = [piece for place, placed in enumerate(place_shares(shares)) for piece in _draw(placed, place)]
    return make_element(
        "svg",
        make_element("title", title, id="treemap-title"),
        make_element("desc", "The table below has the same.", id="treemap-desc"),
        *drawn,
        class_="chart treemap",
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        role="img",
        aria_labelledby="treemap-title treemap-desc",
    )


def _draw(placed: PlacedShare, place: int) -> Iterator[Markup]:
    share, (tone, letter) = placed.share, _TONES[place % len(_TONES)]
    words = f"{share.name}: {format_size(share.size)}"
    yield make_element(
        "rect",
        make_element("title", clean_text(words, 200)),
        x=f"{placed.x:.1f}",
        y=f"{placed.y:.1f}",
        width=f"{max(placed.width - 1, 0):.1f}",
        height=f"{max(placed.height - 1, 0):.1f}",
        rx=2,
        class_=tone,
    )
    letters = int((placed.width - 8) / _LETTER)
    if letters >= 6 and placed.height >= _LINE + 4:
        yield _write(_cut_left(share.name, letters), placed, 1, letter)
    if letters >= 6 and placed.height >= 2 * _LINE + 4:
        yield _write(format_size(share.size), placed, 2, letter)


def _cut_left(name: str, letters: int) -> str:
    """The end of a path says more than its beginning."""
    text = clean_text(name, 200)
    return text if len(text) <= letters else "…" + text[len(text) - letters + 1 :]


def _write(text: str, placed: PlacedShare, line: int, style: str) -> Markup:
    x, y = f"{placed.x + 4:.1f}", f"{placed.y + line * _LINE:.1f}"
    return make_element("text", text, x=x, y=y, class_=f"code {style}")
