# SPDX-License-Identifier: BSD-3-Clause
"""The sizes of an image's layers: one strip for the whole, and one bar each for the largest."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.answers.pages.document import Markup, clean_text, make_element, make_section
from kedge.base.frozen import frozen
from kedge.base.size import format_size
from kedge.compat.traits import Layer

_MOST_BARS = 12
_SMALLEST_SHARE = 0.01  # below it a layer is one of the `N more`
_TONES = 5
_WIDTH = 1000
_LONGEST_LINE = 160


@frozen
class _Bar:
    """One bar: a layer, or the small ones together."""

    size: int
    line: str
    tone: str


def make_layers_picture(layers: Sequence[Layer]) -> Markup | None:
    """The strip and the bars, largest first; None where sizes are not known."""
    total = sum(max(layer.size, 0) for layer in layers)
    if not total:
        return None
    bars = fold_layers(layers)
    words = f"{format_size(total)} in {len(layers)} layer{'s' if len(layers) != 1 else ''}, compressed; largest first."
    return make_section(
        "Layers by size",
        make_element("p", words),
        _draw_strip(bars, total),
        make_element("ol", *(_make_bar(bar, bars[0].size) for bar in bars), class_="bars"),
    )


def fold_layers(layers: Sequence[Layer]) -> list[_Bar]:
    """The bars: the largest layers by size, the others folded into one that is the last."""
    ordered = sorted(layers, key=lambda layer: -layer.size)
    total = sum(max(layer.size, 0) for layer in layers)
    large = [layer for layer in ordered[:_MOST_BARS] if layer.size >= _SMALLEST_SHARE * total]
    if len(ordered) - len(large) == 1:  # `1 more` would take the same room
        large = ordered
    bars = [
        _Bar(layer.size, clean_text(layer.created_by, _LONGEST_LINE) or "history unknown", f"bar{min(place, _TONES)}")
        for place, layer in enumerate(large, 1)
    ]
    small = ordered[len(large) :]
    if small:
        bars.append(_Bar(sum(max(layer.size, 0) for layer in small), f"{len(small)} more, each smaller", "bar6"))
    return bars


def _draw_strip(bars: Sequence[_Bar], total: int) -> Markup:
    segments, place = [], 0.0
    for bar in bars:
        width = _WIDTH * max(bar.size, 0) / total
        title = make_element("title", f"{format_size(bar.size)}: {clean_text(bar.line, 60)}")
        segments.append(make_element("rect", title, x=f"{place:.2f}", width=f"{width:.2f}", height=20, class_=bar.tone))
        place += width
    return make_element(
        "svg",
        make_element("title", "Layers by their share of the whole", id="strip-title"),
        make_element("desc", f"The largest has {100 * bars[0].size / total:.0f} % of it.", id="strip-desc"),
        *segments,
        class_="strip",
        viewBox=f"0 0 {_WIDTH} 20",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby="strip-title strip-desc",
    )


def _make_bar(bar: _Bar, largest: int) -> Markup:
    width = _WIDTH * max(bar.size, 0) / max(largest, bar.size, 1)
    drawn = make_element(
        "svg",
        make_element("rect", width=f"{width:.2f}", height=10, class_=bar.tone),
        viewBox=f"0 0 {_WIDTH} 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    line = make_element("div", drawn, make_element("div", bar.line, class_="code text"), class_="line")
    return make_element("li", make_element("div", format_size(bar.size), class_="size"), line)
