# SPDX-License-Identifier: BSD-3-Clause
"""Plots of figures as PNG, SVG or PDF by matplotlib, which is imported here alone, when a plot is asked for."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from kedge.errors import MissingExtra, UsageError
from kedge.frozen import frozen
from kedge.posix.files import atomic_output

_ENDINGS = (".png", ".svg", ".pdf")
_SIZE = (8.0, 5.0)  # inches
_MUTED = "#555555"
_NOTE = 110  # letters of a line of the note


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
    """A plot, before it is drawn."""

    title: str
    note: str  # the machine, the image, the date
    unit: str
    places: str  # what the x axis shows; empty: bars
    lines: tuple[PlotLine, ...]


def check_plot(path: Path) -> None:
    """Raise before anything is measured where the plot could not be written."""
    if path.suffix.lower() not in _ENDINGS:
        raise UsageError(f"'{path}' is no name of a plot", hint=f"end it with {', '.join(_ENDINGS)}")
    _import_matplotlib()


def draw_plot(plot: BenchPlot, path: Path) -> None:
    """Write it to a file, in the format that the file's name ends with."""
    matplotlib = _import_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "kedge", "font.size": 11, "svg.fonttype": "none"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        (_draw_lines if plot.places else _draw_bars)(axes, plot)
        axes.set_title(plot.title, loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        figure.supxlabel(fill(plot.note, _NOTE), fontsize=8, color=_MUTED, x=0.01, ha="left")
        with atomic_output(path, force=True) as file:
            figure.savefig(file, format=path.suffix.lower().removeprefix("."), dpi=150)


def _draw_lines(axes: Any, plot: BenchPlot) -> None:
    for line in plot.lines:
        places = [point.place for point in line.points]
        middles = [point.middle for point in line.points]
        down = [point.middle - point.low for point in line.points]
        up = [point.high - point.middle for point in line.points]
        drawn = axes.errorbar(places, middles, yerr=[down, up], marker="o", capsize=3, label=line.name)
        limits = [(point.place, point.limit) for point in line.points if point.limit]
        if limits:
            colour = drawn.lines[0].get_color()
            axes.plot(*zip(*limits, strict=True), linestyle="--", color=colour, label=f"{line.name}: limit")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    every = sorted({point.place for line in plot.lines for point in line.points})
    axes.set_xticks(every, [f"{place:g}" for place in every])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel(plot.places)
    axes.set_ylabel(plot.unit)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)


def _draw_bars(axes: Any, plot: BenchPlot) -> None:
    points = [point for line in plot.lines for point in line.points]
    middles = [point.middle for point in points]
    errors = [[point.middle - point.low for point in points], [point.high - point.middle for point in points]]
    names = [point.name for point in points]
    bars = axes.barh(names, middles, xerr=errors, capsize=4, height=0.5, color="#4878a8")
    axes.bar_label(bars, [f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in middles], padding=6)
    for number, point in enumerate(points):
        if point.limit:
            label = "limit" if number == 0 else None
            axes.vlines(point.limit, number - 0.35, number + 0.35, colors="#b03030", linestyles="--", label=label)
    if any(point.limit for point in points):
        axes.legend(frameon=False)
    axes.set_ylim(-0.8, len(points) - 0.2)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel(plot.unit)


def _import_matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra(
            "plots need the package matplotlib, which is not installed", hint="pip install matplotlib"
        ) from None
    return matplotlib
