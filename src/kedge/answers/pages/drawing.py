# SPDX-License-Identifier: BSD-3-Clause
"""Shapes on a sheet, and the sheet as SVG: all that a plot consists of."""

from __future__ import annotations

from kedge.answers.pages.markup import Markup, make_element
from kedge.base.frozen import frozen

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
