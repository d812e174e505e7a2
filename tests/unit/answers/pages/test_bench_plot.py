# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kedge.answers.pages.bench_plot import Sheet, lay_out_plot, list_ticks, write_svg
from kedge.base.frozen import replace
from kedge.cli.bench_record import make_plot
from kedge.tools.bench.record import BenchRecord, Figure, Machine
from tests.builders.rows import each_row

MACHINE = Machine("node01", "EPYC", 16, 128 << 30, ("NVIDIA H200",), "580.95.05")
LINES = BenchRecord(
    "matmul",
    tuple(
        Figure(f"{size} {kind}", "GFLOP/s", (0.9 * rate, rate, rate), 2 * rate, "rate", kind, size)
        for kind in ("float32", "bf16")
        for size, rate in ((256, 1e3), (1024, 2e4))
    ),
    MACHINE,
    "pytorch.sif",
)
BARS = BenchRecord("start", (Figure("kedge exec", "s", (0.02, 0.03, 0.04), 0.002, "outside"),), MACHINE)
RANKS = BenchRecord(
    "pi",
    tuple(
        Figure(
            f"{ranks} ranks", "s", (0.9 * seconds, seconds, 1.25 * seconds), work="9 intervals", workers=ranks, nodes=1
        )
        for ranks, seconds in ((1, 8.0), (2, 4.0), (4, 2.5))
    ),
    MACHINE,
)


def draw(*records: tuple[str, BenchRecord]) -> Sheet:
    return lay_out_plot(make_plot(records))


def test_bench_plot_is_lines_or_bars_of_each_result() -> None:
    lines, bars = make_plot([("", LINES)]), make_plot([("", BARS)])
    assert (lines.places, [line.name for line in lines.lines]) == ("rows of the matrices", ["float32", "bf16"])
    assert [point.place for point in lines.lines[0].points] == [256, 1024]
    assert (bars.places, bars.unit) == ("", "seconds")
    assert "1 x NVIDIA H200, driver 580.95.05" in lines.note
    plot = make_plot([("a.json", LINES), ("b.json", LINES)])
    assert [line.name for line in plot.lines] == ["a.json float32", "a.json bf16", "b.json float32", "b.json bf16"]
    bars = make_plot([("a.json", BARS), ("b.json", BARS)])
    assert [point.name for line in bars.lines for point in line.points] == ["kedge exec, a.json", "kedge exec, b.json"]


def test_bench_plot_of_a_sweep_is_the_speed_up_beside_the_ideal() -> None:
    plot = make_plot([("", RANKS)])
    assert (plot.unit, plot.places, plot.limit) == ("speed-up", "ranks", "ideal")
    (line,) = plot.lines
    assert [(point.place, point.middle, point.limit) for point in line.points] == [
        (1, 1.0, 1.0),
        (2, 2.0, 2.0),
        (4, pytest.approx(3.2), 4.0),
    ]
    assert (line.points[2].low, line.points[2].high) == (pytest.approx(3.2 / 1.25), pytest.approx(3.2 / 0.9))


@each_row("record", [LINES, BARS, RANKS], ids=["lines", "bars", "sweep"])
def test_bench_plot_svg_is_whole_and_on_the_sheet(record: BenchRecord) -> None:
    sheet = draw(("", record))
    root = ElementTree.fromstring(write_svg(sheet))
    names = [element.tag.rpartition("}")[2] for element in root]
    assert names.count("path") == len(sheet.strokes)
    assert names.count("text") == len(sheet.labels)
    places = [point for stroke in sheet.strokes for point in stroke.points] + [dot.middle for dot in sheet.dots]
    assert all(0 <= x <= sheet.width and 0 <= y <= sheet.height for x, y in places)
    assert any("NVIDIA H200" in label.text for label in sheet.labels)


def test_bench_plot_scales_are_logarithmic_and_ticks_fit() -> None:
    # The ideal doubles with the ranks: 1, 2 and 4 are as far from each other, to the right and up
    (ideal,) = (stroke.points for stroke in draw(("", RANKS)).strokes if stroke.is_dashed and len(stroke.points) == 3)
    (x1, y1), (x2, y2), (x4, y4) = ideal
    assert x2 - x1 == pytest.approx(x4 - x2)
    assert y1 - y2 == pytest.approx(y2 - y4)
    assert x1 < x2
    assert y1 > y2  # pixels count from above
    sheet = draw(("", RANKS))
    ticks = {label.text: label.place[1] - 4 for label in sheet.labels if label.anchor == "end"}
    assert [dot.middle[1] for dot in sheet.dots][:2] == [pytest.approx(ticks["1"]), pytest.approx(ticks["2"])]


def test_bench_plot_words_of_others_stay_text() -> None:
    hostile = replace(LINES, image="</title><script>alert(1)</script>", program="\x1b[2J&<b>")
    text = write_svg(draw(("", hostile))).decode()
    ElementTree.fromstring(text)
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text
    assert "\x1b" not in text


@each_row(("low", "high", "expected"), [
    (0.9, 8.5, [1, 1.5, 2, 3, 4, 5, 7]), (1, 100, [1, 2, 5, 10, 20, 50, 100]),
    (1, 1e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
])  # fmt: skip
def test_bench_plot_ticks_are_round_and_few(low: float, high: float, expected: list[float]) -> None:
    assert list_ticks(low, high) == pytest.approx(expected)
    assert 2 <= len(list_ticks(1e-9, 1e20)) <= 10
