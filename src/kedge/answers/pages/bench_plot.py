# SPDX-License-Identifier: BSD-3-Clause
"""Plots of figures: lines over an axis with both scales logarithmic, or bars; laid out here, drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from kedge.answers.pages.document import Markup, clean_text, make_element
from kedge.base.frozen import frozen

_COLOURS = ("#2f6fa8", "#c4622d", "#3a8a52", "#8a4a9e", "#a08020", "#3f8f95", "#b0406a", "#606060")
_GRID, _LIMIT = "#dddddd", "#b03030"
_WIDTH, _HEIGHT = 800, 500
_LEFT, _RIGHT, _TOP = 90.0, 24.0, 48.0
_NOTE = 125  # letters of a line of the note
_LETTER = 6.6  # the room of one, about
_BAR = 46.0  # the room of a bar
_LONGEST = 34  # letters of a bar's name
_MOST_LINES, _MOST_POINTS = 16, 40  # those beyond are left out


@frozen
class PlotPoint:
    """One figure: its repeats from the lowest to the highest, and what the hardware allows."""

    name: str
    place: float  # on the x axis; 0: it has none
    low: float
    middle: float
    high: float
    limit: float | None


@frozen
class PlotLine:
    """Figures that belong together."""

    name: str
    points: tuple[PlotPoint, ...]


@frozen
class BenchPlot:
    """A plot, before it is laid out."""

    title: str
    note: str  # the machine, the image, the date
    unit: str
    places: str  # what the x axis shows; empty: bars
    lines: tuple[PlotLine, ...]
    limit: str = "limit"  # what the dashed lines are


def lay_out_plot(plot: BenchPlot) -> Sheet:
    """Every line, dot and word of it, and where it stands."""
    note = wrap(plot.note, _NOTE)[:4]
    shapes: list[Shape] = [Label((16, 28), clean_text(plot.title, 90), 15, is_bold=True)]
    if plot.places:
        height = _HEIGHT
        shapes += _lay_out_lines(plot, height - 70.0 - 14 * len(note))
    else:
        count = sum(len(line.points) for line in plot.lines[:_MOST_LINES])
        bottom = _TOP + _BAR * min(count, _MOST_POINTS)
        height = int(bottom) + 62 + 14 * len(note)
        shapes += _lay_out_bars(plot, bottom)
    shapes += [
        Label((16, height - 10 - 14 * (len(note) - 1 - number)), line, 10, colour=MUTED)
        for number, line in enumerate(note)
    ]
    return make_sheet(plot.title, _WIDTH, height, shapes)


@frozen
class _Scale:
    """From values to pixels."""

    first: float
    last: float
    begin: float  # pixels of the first value
    end: float
    is_linear: bool = False

    def put(self, value: float) -> float:
        """Where a value stands."""
        bend: Callable[[float], float] = float if self.is_linear else math.log
        low, high = bend(self.first), bend(self.last)
        return self.begin + (self.end - self.begin) * (bend(value) - low) / (high - low)


def _lay_out_lines(plot: BenchPlot, bottom: float) -> Iterator[Shape]:
    lines = [PlotLine(line.name, line.points[:_MOST_POINTS]) for line in plot.lines[:_MOST_LINES]]
    points = [point for line in lines for point in line.points]
    places = sorted({point.place for point in points})
    values = [value for point in points for value in (point.low, point.high, point.limit) if value]
    room = min(max(len(_name_line(line)) for line in lines) * _LETTER + 40, 240.0)  # of the legend
    across = _Scale(places[0] / 1.1, places[-1] * 1.1, _LEFT, _WIDTH - _RIGHT - room)
    upward = _Scale(min(values) / 1.15, max(values) * 1.15, bottom, _TOP)
    yield from _draw_axes(plot, across, upward, places)
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        yield from _draw_line(line, across, upward, colour)
        middle = _TOP + 10 + 18 * number
        yield Stroke(((across.end + 14, middle), (across.end + 34, middle)), colour, 2)
        yield Label((across.end + 40, middle + 4), clean_text(_name_line(line), 32), 12)
    if any(point.limit for point in points):
        middle = _TOP + 10 + 18 * len(lines)
        yield Stroke(((across.end + 14, middle), (across.end + 34, middle)), MUTED, 1.5, is_dashed=True)
        yield Label((across.end + 40, middle + 4), plot.limit, 12, colour=MUTED)


def _name_line(line: PlotLine) -> str:
    return line.name or line.points[0].name


def _draw_axes(plot: BenchPlot, across: _Scale, upward: _Scale, places: Sequence[float]) -> Iterator[Shape]:
    for value in list_ticks(upward.first, upward.last):
        height = upward.put(value)
        yield Stroke(((across.begin, height), (across.end, height)), _GRID)
        yield Label((across.begin - 8, height + 4), f"{value:,.10g}", 11, "end", MUTED)
    free = 0.0
    for place in places:
        x, text = across.put(place), f"{place:g}"
        yield Stroke(((x, upward.begin), (x, upward.begin + 5)), BLACK)
        if x - len(text) * _LETTER / 2 >= free:
            yield Label((x, upward.begin + 19), text, 11, "middle", MUTED)
            free = x + len(text) * _LETTER / 2 + 6
    yield Stroke(((across.begin, upward.end), (across.begin, upward.begin), (across.end, upward.begin)), BLACK)
    yield Label(((across.begin + across.end) / 2, upward.begin + 40), plot.places, 12, "middle")
    yield Label((22, (upward.begin + upward.end) / 2), plot.unit, 12, "middle", is_turned=True)


def _draw_line(line: PlotLine, across: _Scale, upward: _Scale, colour: str) -> Iterator[Shape]:
    points = sorted(line.points, key=lambda point: point.place)
    yield Stroke(tuple((across.put(each.place), upward.put(each.middle)) for each in points), colour, 2)
    limits = tuple((across.put(each.place), upward.put(each.limit)) for each in points if each.limit)
    if limits:
        yield Stroke(limits, colour, 1.5, is_dashed=True)
    for each in points:
        x = across.put(each.place)
        low, high = upward.put(each.low), upward.put(each.high)
        yield Dot((x, upward.put(each.middle)), colour=colour)
        yield Stroke(((x, low), (x, high)), colour)
        yield from (Stroke(((x - 3, end), (x + 3, end)), colour) for end in (low, high))


def list_ticks(low: float, high: float) -> list[float]:
    """Round values of a logarithmic axis: 1, 2 and 5 in each decade, or decades alone where those were many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= 9:
            return ticks
    return ticks[:: len(ticks) // 9 + 1]


def _lay_out_bars(plot: BenchPlot, bottom: float) -> Iterator[Shape]:
    points = [point for line in plot.lines[:_MOST_LINES] for point in line.points][:_MOST_POINTS]
    names = [clean_text(point.name, _LONGEST) for point in points]
    left = 28 + max(len(name) for name in names) * _LETTER
    most = max(value for point in points for value in (point.high, point.limit or 0))
    across = _Scale(0, most, left, _WIDTH - 110.0, is_linear=True)
    step = 10.0 ** math.floor(math.log10(most))
    step = next(part for part in (step / 5, step / 2, step, 2 * step) if most / part <= 7)
    for number in range(int(most / step) + 1):
        x = across.put(number * step)
        yield Stroke(((x, _TOP), (x, bottom)), _GRID)
        yield Label((x, bottom + 16), f"{number * step:,.10g}", 11, "middle", MUTED)
    for number, (name, point) in enumerate(zip(names, points, strict=True)):
        yield from _draw_bar(name, point, across, _TOP + _BAR * (number + 0.5))
    if any(point.limit for point in points):
        yield Stroke(((across.end + 8, _TOP - 10), (across.end + 28, _TOP - 10)), _LIMIT, 1.5, is_dashed=True)
        yield Label((across.end + 34, _TOP - 6), plot.limit, 11, colour=_LIMIT)
    yield Label(((across.begin + across.end) / 2, bottom + 36), plot.unit, 12, "middle")


def _draw_bar(name: str, point: PlotPoint, across: _Scale, middle: float) -> Iterator[Shape]:
    low, high = across.put(point.low), across.put(point.high)
    yield Label((across.begin - 8, middle + 4), name, 12, "end")
    yield Box((across.begin, middle - 11), across.put(point.middle) - across.begin, 22, _COLOURS[0])
    yield Stroke(((low, middle), (high, middle)), BLACK)
    yield from (Stroke(((x, middle - 4), (x, middle + 4)), BLACK) for x in (low, high))
    if point.limit:
        x = across.put(point.limit)
        yield Stroke(((x, middle - 17), (x, middle + 17)), _LIMIT, 1.5, is_dashed=True)
    shown = f"{point.middle:,.0f}" if point.middle >= 1000 else f"{point.middle:.4g}"
    yield Label((max(high, across.put(point.limit) if point.limit else 0) + 8, middle + 4), shown, 12)


# Shapes on a sheet, and the sheet as SVG: all that a plot consists of.

BLACK, MUTED = "#222222", "#555555"


@frozen
class Stroke:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str = BLACK
    width: float = 1.0
    is_dashed: bool = False


@frozen
class Box:
    """A filled rectangle."""

    corner: tuple[float, float]  # the upper left one
    width: float
    height: float
    colour: str = BLACK


@frozen
class Dot:
    """A filled circle."""

    middle: tuple[float, float]
    radius: float = 3.5
    colour: str = BLACK


@frozen
class Label:
    """A line of text; its place is the left end, the middle or the right end of its base line."""

    place: tuple[float, float]
    text: str
    size: float = 12.0
    anchor: str = "start"  # start, middle, end
    colour: str = BLACK
    is_bold: bool = False
    is_turned: bool = False  # read from below


Shape = Stroke | Box | Dot | Label


@frozen
class Sheet:
    """A drawing in pixels, from the upper left corner."""

    title: str
    width: int
    height: int
    strokes: tuple[Stroke, ...]
    boxes: tuple[Box, ...]
    dots: tuple[Dot, ...]
    labels: tuple[Label, ...]


def make_sheet(title: str, width: int, height: int, shapes: list[Shape]) -> Sheet:
    """The shapes by their kinds, in which order they are drawn: boxes, lines, dots, text."""
    return Sheet(
        title=title,
        width=width,
        height=height,
        strokes=tuple(each for each in shapes if isinstance(each, Stroke)),
        boxes=tuple(each for each in shapes if isinstance(each, Box)),
        dots=tuple(each for each in shapes if isinstance(each, Dot)),
        labels=tuple(each for each in shapes if isinstance(each, Label)),
    )


def write_svg(sheet: Sheet) -> bytes:
    """Return one file that asks nothing of anybody: no script, no font, nothing from outside."""
    background = Box((0, 0), sheet.width, sheet.height, "#ffffff")
    drawn = make_element(
        "svg",
        make_element("title", sheet.title),
        *(_draw_box(each) for each in (background, *sheet.boxes)),
        *(_draw_stroke(each) for each in sheet.strokes),
        *(_draw_dot(each) for each in sheet.dots),
        *(_draw_label(each) for each in sheet.labels),
        xmlns="http://www.w3.org/2000/svg",
        width=sheet.width,
        height=sheet.height,
        viewBox=f"0 0 {sheet.width} {sheet.height}",
        font_family="sans-serif",
        role="img",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n'.encode()


def _draw_stroke(stroke: Stroke) -> Markup:
    path = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(stroke.points))
    dashes = "6 4" if stroke.is_dashed else None
    return make_element(
        "path", d=path, fill="none", stroke=stroke.colour, stroke_width=stroke.width, stroke_dasharray=dashes
    )


def _draw_box(box: Box) -> Markup:
    x, y = box.corner
    return make_element(
        "rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{box.width:.1f}", height=f"{box.height:.1f}", fill=box.colour
    )


def _draw_dot(dot: Dot) -> Markup:
    x, y = dot.middle
    return make_element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=dot.radius, fill=dot.colour)


def _draw_label(label: Label) -> Markup:
    x, y = label.place
    return make_element(
        "text",
        label.text,
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        fill=label.colour,
        font_size=label.size,
        font_weight="bold" if label.is_bold else None,
        text_anchor=None if label.anchor == "start" else label.anchor,
        transform=f"rotate(-90 {x:.1f} {y:.1f})" if label.is_turned else None,
    )
