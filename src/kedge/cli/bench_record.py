# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge bench` shows and keeps: the table, the machine below it, `--output` and `--plot`, and comparisons."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.launch import read_count, read_seconds
from kedge.pages.bench_plot import BenchPlot, PlotLine, PlotPoint, check_plot, draw_plot
from kedge.posix.files import explained, write_atomically

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.ops.bench.compare import BenchComparison
    from kedge.ops.bench.record import BenchRecord, Figure
    from kedge.ops.bench.repeats import Repeats

_PLACES = {"matmul": "rows of the matrices", "allreduce": "bytes of the message", "nbody": "bodies"}
_VERDICTS = {"faster": "good", "slower": "warning"}


def add_repeats(parser: argparse.ArgumentParser, *, warmup: int, repeats: int, seconds: float = 600.0) -> None:
    """How often it runs, and for how long."""
    parser.add_argument(
        "--warm-up", type=int, metavar="N", default=warmup, help=f"untimed runs before (default: {warmup})"
    )
    parser.add_argument(
        "--repeats", type=read_count, metavar="N", default=repeats, help=f"timed runs (default: {repeats})"
    )
    parser.add_argument(
        "--timeout", type=read_seconds, metavar="SECONDS", default=seconds, help=f"time limit (default: {seconds:g})"
    )


def read_repeats(arguments: argparse.Namespace) -> Repeats:
    """As the options say."""
    from kedge.ops.bench.repeats import Repeats

    return Repeats(max(arguments.warm_up, 0), arguments.repeats)


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """Where the result goes besides the terminal."""
    keep = parser.add_argument_group("what is kept")
    keep.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON, for kedge bench compare")
    keep.add_argument(
        "--plot", type=Path, action="append", metavar="FILE", default=[], help="draw it: .png, .svg or .pdf; repeatable"
    )


def check_places(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written before anything is measured."""
    for path in (*arguments.plot, *([arguments.output] if arguments.output else [])):
        with explained(path.parent):
            path.parent.stat()
    for path in arguments.plot:
        check_plot(path)


def keep_record(record: BenchRecord, arguments: argparse.Namespace, console: Console) -> None:
    """Write what --output and --plot ask for."""
    if arguments.output:
        write_atomically(arguments.output, (json.dumps(record.as_dict(), indent=2) + "\n").encode())
    if arguments.plot:
        plot = make_plot(record)
        for path in arguments.plot:
            draw_plot(plot, path)
    written = [*([arguments.output] if arguments.output else []), *arguments.plot]
    if written and not console.json:
        console.print(f"wrote {', '.join(str(path) for path in written)}")


def make_plot(record: BenchRecord) -> BenchPlot:
    """Lines where figures have a place on an axis and there are several, else bars."""
    figures = [each for each in record.figures if each.unit == record.figures[0].unit]
    has_axis = len({each.place for each in figures if each.place}) > 1
    names = dict.fromkeys(each.line for each in figures)
    lines = tuple(PlotLine(name, tuple(_make_point(each) for each in figures if each.line == name)) for name in names)
    where = f"{record.bench}{f' in {_name_image(record.image)}' if record.image else ', outside of containers'}"
    unit = "seconds" if figures[0].is_time else figures[0].unit
    return BenchPlot(where, describe_machine(record), unit, _PLACES.get(record.bench, "") if has_axis else "", lines)


def _name_image(image: str) -> str:
    return "a container of this host's own system" if image == "/" else image


def _make_point(figure: Figure) -> PlotPoint:
    low, high = min(figure.values), max(figure.values)
    return PlotPoint(figure.name, figure.place, low, figure.median, high, figure.limit)


def show_record(record: BenchRecord, console: Console) -> None:
    """The table, and what the figures belong to."""
    if console.json:
        console.print_json(record.as_dict())
        return
    rows = [
        [each.name, _show_value(each.median, each.unit), f"{100 * each.spread:.1f} %", *_show_limit(each)]
        for each in record.figures
    ]
    console.print_table([record.bench.upper(), "MEDIAN", "SPREAD", "LIMIT", "OF LIMIT"], rows)
    reasons = dict.fromkeys(each.limit_name for each in record.figures if each.limit_name)
    console.print(f"limit: {'; '.join(reasons)}")
    console.print(describe_machine(record))


def describe_machine(record: BenchRecord) -> str:
    """The machine, the image and the moment, in one line."""
    machine = record.machine
    gpus = [machine.show("gpus"), f"driver {machine.driver}"] if machine.gpus else []
    place = [record.digest[:19]] if record.digest else []
    parts = [machine.cpu, f"{machine.cores} cores", machine.show("memory"), *gpus, record.program, *place]
    return ", ".join(part for part in (*parts, f"kedge {record.kedge}", record.date) if part)


def _show_value(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:.3f} {unit}" if value < 1 else f"{value:,.1f} {unit}"


def _show_limit(figure: Figure) -> list[str]:
    if figure.limit is None or figure.percent is None:
        return ["unknown", ""]
    return [_show_value(figure.limit, figure.unit), f"{figure.percent:.1f} %"]


def show_comparison(comparison: BenchComparison, console: Console) -> None:
    """The ratios, and what else differs."""
    if console.json:
        console.print_json(comparison.as_dict())
        return
    rows = [
        [
            each.name,
            _show_value(each.first, each.unit),
            _show_value(each.second, each.unit),
            f"{each.ratio:.3f}",
            f"{100 * each.spread:.1f} %",
            console.paint(each.verdict, _VERDICTS.get(each.verdict, "note")),
        ]
        for each in comparison.figures
    ]
    console.print_table([comparison.bench.upper(), "FIRST", "SECOND", "RATIO", "SPREAD", "THE SECOND IS"], rows)
    for difference in comparison.differences:
        console.print(f"differs: {difference}")
    for which, names in (("first", comparison.only_first), ("second", comparison.only_second)):
        if names:
            console.print(f"only in the {which}: {', '.join(names)}")
