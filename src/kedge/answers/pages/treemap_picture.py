# SPDX-License-Identifier: BSD-3-Clause
"""A picture of the directories of an image: rectangles whose areas are their sizes, as square as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kedge.answers.pages.markup import Markup, clean_text, make_element
from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.compat.contents.size_report import SizeShare

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
