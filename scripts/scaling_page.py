# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/scaling.md and its picture: figures of bench/scale, and the model of launch/start_model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from kedge.base.frozen import replace
from kedge.launch.start_model import (
    NFS,
    PARALLEL,
    FileServer,
    JobSize,
    StartCost,
    count_operations,
    estimate_broadcast,
    estimate_start,
)

REPOSITORY = Path(__file__).resolve().parent.parent
FIGURES = REPOSITORY / "bench/scale.json"
PAGE = REPOSITORY / "docs/scaling.md"
PICTURE = REPOSITORY / "docs/pictures/scaling.svg"

SIZES = tuple((nodes, ranks) for nodes in (1, 64, 1024) for ranks in (8, 64))
IMAGE = 4_000_000_000  # bytes
PART = 0.1  # of it that a mounted image has to hand over before the first line
_PLACES = (1, 4, 16, 64, 256, 1024)
_COLOURS = ("#b03a2e", "#d68910", "#2471a3", "#1e8449", "#6c3483")
_DASHES = ("none", "9 3", "3 3", "none", "12 3 3 3")  # for those who cannot tell the colours
_PANEL, _LEFT, _TOP, _HIGH, _GAP = 330, 62, 64, 250, 70
_TITLE = "kedge and Apptainer: seconds until all ranks run (64 on each node)"
_LOW, _MOST = 0.1, 1000.0  # seconds


def read_figures(path: Path = FIGURES) -> dict[str, Any]:
    """What bench/scale wrote."""
    figures: dict[str, Any] = json.loads(path.read_text())
    return figures


def make_costs(figures: Mapping[str, Any]) -> list[StartCost]:
    """The ways to start, on a node that has the image."""
    return [
        StartCost(
            *(way[name] for name in ("name", "first", "later", "node_bytes", "seconds", "staged_bytes")),
            first_seconds=way["first_seconds"] - way["seconds"],
        )
        for way in figures["ways"]
    ]


def make_tables(figures: Mapping[str, Any]) -> dict[str, str]:
    """Every table of the page by its name."""
    costs = make_costs(figures)
    return {
        "operations": _show_operations(figures["ways"]),
        "requests": _show_rows(("Who asks", "Requests"), [(name, str(n)) for name, n in figures["requests"].items()]),
        "jobs": _show_jobs(costs),
        "nfs": _show_seconds(costs, NFS),
        "parallel": _show_seconds(costs, PARALLEL),
        "images": _show_images(),
        "validation": _show_validation(figures["validation"]),
    }


def write_page(figures: Mapping[str, Any], text: str) -> str:
    """The page with its tables made anew."""
    for name, table in make_tables(figures).items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda match, table=table: f"{match[1]}{table}{match[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} has {count} places for the table '{name}'")
    return text


def _show_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _show_operations(ways: Sequence[Mapping[str, Any]]) -> str:
    heads = (
        "Start from",
        "Rank on a node",
        "Calls naming a file",
        "Opened",
        "Operations at the server",
        "Bytes",
        "CPU",
    )
    rows = []
    for way in ways:
        for turn, operations, length in (("first", way["first"], way["node_bytes"]), ("later", way["later"], 0)):
            calls = way["calls"][turn]
            counts = [f"{calls[f'shared_{name}']:,}" if turn == "later" else "" for name in ("named", "opened")]
            shown = (*counts, f"{operations:,}", _show_bytes(length))
            cpu = way["first_seconds" if turn == "first" else "seconds"]
            rows.append((way["name"] if turn == "first" else "", turn, *shown, f"{cpu * 1000:.0f} ms"))
    return _show_rows(heads, rows)


def _show_bytes(length: int) -> str:
    return f"{length / 1e6:.1f} MB" if length else "0"


def _show_jobs(costs: Sequence[StartCost]) -> str:
    heads = ("Operations of the whole job", *(f"{nodes:,} × {ranks}" for nodes, ranks in SIZES))
    rows = [(cost.name, *(f"{count_operations(cost, JobSize(*size)):,}" for size in SIZES)) for cost in costs]
    return _show_rows(heads, rows)


def _show_seconds(costs: Sequence[StartCost], server: FileServer) -> str:
    heads = (f"Seconds, {server.name}", *(f"{nodes:,} × {ranks}" for nodes, ranks in SIZES))
    rows = [
        (cost.name, *(_show_time(estimate_start(cost, server, JobSize(*size))) for size in SIZES)) for cost in costs
    ]
    return _show_rows(heads, rows)


def _show_time(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


def _show_images() -> str:
    heads = (
        "Seconds until all nodes have what they need of the image",
        *(f"{server.name}, {nodes:,} nodes" for server in (NFS, PARALLEL) for nodes in (64, 1024)),
    )
    nothing = StartCost("", 0, 0, 0, 0.0)
    ways = {
        "every node reads all of it (kedge unpacks it)": nothing,
        "every node reads a tenth (mounted: Apptainer, kedge above 4 GiB)": replace(nothing, reads_image=PART),
    }
    rows = [
        (
            name,
            *(
                _show_time(estimate_start(cost, server, JobSize(nodes, 1, IMAGE)))
                for server in (NFS, PARALLEL)
                for nodes in (64, 1024)
            ),
        )
        for name, cost in ways.items()
    ]
    copied = [
        _show_time(estimate_broadcast(IMAGE, nodes) + IMAGE / server.bandwidth)
        for server in (NFS, PARALLEL)
        for nodes in (64, 1024)
    ]
    return _show_rows(heads, [*rows, ("the job copies it to every node (sbcast)", *copied)])


def _show_validation(validation: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    heads = ("Start from", "Nodes × ranks", "Operations expected", "counted", "Seconds by the model", "measured")
    rows = []
    for name, found in validation.items():
        for each in found:
            size = f"{each['nodes']:g} × {each['ranks']:g}"
            counts = (f"{each['expected']:,}", f"{each['operations']:,}")
            rows.append((name, size, *counts, f"{each['model']:.2f}", f"{each['seconds']:.2f}"))
    return _show_rows(heads, rows)


def make_picture(figures: Mapping[str, Any]) -> str:
    """Seconds by the number of nodes, 64 ranks on each, for both servers."""
    costs = make_costs(figures)
    width, height = _LEFT + 2 * _PANEL + _GAP + 20, _TOP + _HIGH + 62 + 18 * len(costs)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        ' font-family="system-ui, sans-serif" font-size="12" fill="#222222">',
        "<title>Seconds until 64 ranks on each node run, by the number of nodes</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold">{_TITLE}</text>',
    ]
    for panel, server in enumerate((NFS, PARALLEL)):
        parts += _draw_panel(costs, server, _LEFT + panel * (_PANEL + _GAP))
    for number, cost in enumerate(costs):
        y = _TOP + _HIGH + 58 + 18 * number
        stroke = _choose_stroke(number)
        parts.append(f'<path d="M{_LEFT} {y - 4}h26" {stroke}/>')
        parts.append(f'<text x="{_LEFT + 34}" y="{y}">{escape(cost.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _draw_panel(costs: Sequence[StartCost], server: FileServer, left: int) -> list[str]:
    from math import log10

    def place_x(nodes: int) -> float:
        return left + _PANEL * _PLACES.index(nodes) / (len(_PLACES) - 1)

    def place_y(seconds: float) -> float:
        return _TOP + _HIGH * (1 - log10(max(seconds, _LOW) / _LOW) / log10(_MOST / _LOW))

    rate = f"{server.operations:,.0f} operations/s, {server.bandwidth / 1e9:g} GB/s"
    parts = [f'<text x="{left}" y="{_TOP - 12}">{escape(server.name)}: {rate}</text>']
    second = _LOW
    while second <= _MOST:
        y = place_y(second)
        parts.append(f'<path d="M{left} {y:.1f}h{_PANEL}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{second:,g}</text>')
        second *= 10
    parts += [
        f'<text x="{place_x(nodes):.1f}" y="{_TOP + _HIGH + 18}" text-anchor="middle">{nodes:,}</text>'
        for nodes in _PLACES
    ]
    parts.append(f'<text x="{left + _PANEL / 2:.0f}" y="{_TOP + _HIGH + 36}" text-anchor="middle">nodes</text>')
    for number, cost in enumerate(costs):
        points = [(place_x(nodes), place_y(estimate_start(cost, server, JobSize(nodes, 64)))) for nodes in _PLACES]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" {_choose_stroke(number)}/>')
    return parts


def _choose_stroke(number: int) -> str:
    colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    return f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"'
