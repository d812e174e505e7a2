# SPDX-License-Identifier: BSD-3-Clause
"""What `kedge bench` shows and keeps: the table, the machine below it, `--output` and `--plot`, and comparisons."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.answers.pages.bench_plot import BenchPlot, PlotLine, PlotPoint, lay_out_plot, write_svg
from kedge.base.size import format_size
from kedge.cli.launch import read_count, read_seconds
from kedge.errors import UsageError
from kedge.system.files import explained, refuse_others, write_atomically

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.tools.bench.compare import BenchComparison
    from kedge.tools.bench.record import BenchRecord, Figure, Repeats
    from kedge.tools.bench.sweep import ScalingPoint

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
    """Return how often to measure, as the options say."""
    from kedge.tools.bench.record import Repeats

    return Repeats(max(arguments.warm_up, 0), arguments.repeats)


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """Where the result goes besides the terminal."""
    keep = parser.add_argument_group("what is kept")
    keep.add_argument("--output", type=Path, metavar="FILE", help="write the result as JSON, for kedge bench compare")
    add_plot(keep)


def add_plot(options: argparse._ActionsContainer) -> None:
    """`--plot`."""
    options.add_argument(
        "--plot",
        type=Path,
        action="append",
        metavar="FILE",
        default=[],
        help="draw it into an .svg; repeatable",
    )


def check_places(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written before anything is measured."""
    output = getattr(arguments, "output", None)
    for path in (*arguments.plot, *([output] if output else [])):
        with explained(path.parent):
            path.parent.stat()
    if output:
        refuse_others(output, b'"bench":')
    for path in arguments.plot:
        if path.suffix.lower() != ".svg":
            raise UsageError(f"'{path}' is no name of a plot", hint="end it with .svg, which every browser opens")


def keep_record(record: BenchRecord, arguments: argparse.Namespace, console: Console) -> None:
    """Write what --output and --plot ask for."""
    output = [arguments.output] if arguments.output else []
    if output:
        write_atomically(arguments.output, (json.dumps(record.as_dict(), indent=2) + "\n").encode())
    _tell_written([*output, *_draw([("", record)], arguments, console)], console)


def keep_records(records: Sequence[tuple[str, BenchRecord]], arguments: argparse.Namespace, console: Console) -> None:
    """Keep several records: --output writes NAME-QUEUE.json for each, --plot draws all in one."""
    written = []
    output: Path | None = getattr(arguments, "output", None)
    for name, record in records:
        if output is None:
            break
        path = output.with_name(f"{output.stem}-{name.replace('/', '-')}{output.suffix}")
        write_atomically(path, (json.dumps(record.as_dict(), indent=2) + "\n").encode())
        written.append(path)
    _tell_written([*written, *_draw(records, arguments, console)], console)


def _tell_written(paths: Sequence[Path], console: Console) -> None:
    if paths and not console.json:
        console.print(f"wrote {', '.join(str(path) for path in paths)}")


def _draw(records: Sequence[tuple[str, BenchRecord]], arguments: argparse.Namespace, console: Console) -> list[Path]:
    plots: list[Path] = arguments.plot
    if plots and not records[0][1].figures:
        console.progress.warn("Nothing to plot: one rank alone exchanges no data")
        return []
    drawn = write_svg(lay_out_plot(make_plot(records))) if plots else b""
    for path in plots:
        write_atomically(path, drawn)
    return plots


def make_plot(records: Sequence[tuple[str, BenchRecord]]) -> BenchPlot:
    """Speed-ups if ranks or GPUs were swept; lines where figures have places on an axis; else bars."""
    from kedge.tools.bench.sweep import list_scaling

    (_, first), several = records[0], len(records) > 1
    where = f"{first.bench}{f' in {_name_image(first.image)}' if first.image else ', outside of containers'}"
    if several:
        where = f"{first.bench}: {', '.join(name for name, _ in records)}"
    note = "; ".join(dict.fromkeys(describe_machine(record) for _, record in records))
    if any(point.speed_up for _, record in records for point in list_scaling(record)):
        lines = tuple(line for name, record in records for line in _list_speed_ups(record, name))
        worker = "GPUs" if first.bench == "nbody" else "ranks"
        return BenchPlot(title=where, note=note, unit="speed-up", places=worker, lines=lines, limit="ideal")
    unit = first.figures[0].unit
    figures = [(name, each) for name, record in records for each in record.figures if each.unit == unit]
    has_axis = len({each.place for _, each in figures if each.place}) > 1
    keys = dict.fromkeys((name, each.line) for name, each in figures)
    lines = tuple(
        PlotLine(
            " ".join(part for part in key if part),
            tuple(_make_point(each, name) for name, each in figures if (name, each.line) == key),
        )
        for key in keys
    )
    shown = "seconds" if figures[0][1].is_time else unit
    return BenchPlot(where, note, shown, _PLACES.get(first.bench, "") if has_axis else "", lines)


def _list_speed_ups(record: BenchRecord, name: str) -> list[PlotLine]:
    """A line for each work, with the ideal beside it."""
    from kedge.tools.bench.sweep import list_scaling

    by_name = {each.name: each for each in record.figures}
    lines: dict[str, list[PlotPoint]] = {}
    for point in list_scaling(record):
        figure, speed_up = by_name[point.name], point.speed_up or 0.0
        shares = sorted((figure.median / value) ** (1 if figure.is_time else -1) for value in figure.values)
        ideal = speed_up / point.efficiency
        made = PlotPoint(
            point.name,
            point.workers,
            low=speed_up * shares[0],
            middle=speed_up,
            high=speed_up * shares[-1],
            limit=ideal,
        )
        lines.setdefault(point.work, []).append(made)
    return [PlotLine(" ".join(part for part in (name, work) if part), tuple(made)) for work, made in lines.items()]


def _name_image(image: str) -> str:
    return "a container of this host's own system" if image == "/" else image


def _make_point(figure: Figure, record_name: str) -> PlotPoint:
    name = f"{figure.name}, {record_name}" if record_name else figure.name
    low, high = min(figure.values), max(figure.values)
    return PlotPoint(name, figure.place, low=low, middle=figure.median, high=high, limit=figure.limit)


def show_record(record: BenchRecord, console: Console) -> None:
    """The table, and what the figures belong to."""
    from kedge.tools.bench.sweep import list_scaling

    scaling = {point.name: point for point in list_scaling(record)}
    if console.json:
        points = {"scaling": [point.as_dict() for point in scaling.values()]} if scaling else {}
        console.print_json({**record.as_dict(), **points})
        return
    has_limit = not scaling or any(each.limit for each in record.figures)
    is_product = record.bench == "matmul"
    headings = [record.bench.upper(), *(["MEMORY", "TIME"] if is_product else []), "MEDIAN", "SPREAD"]
    headings += ["SPEED-UP", "EFFICIENCY"] if scaling else []
    rows = [
        [
            *(each.name, *(_show_product(each) if is_product else [])),
            *(_show_value(each.median, each.unit), f"{100 * each.spread:.1f} %"),
            *(_show_scaling(scaling.get(each.name)) if scaling else []),
            *(_show_limit(each) if has_limit else []),
        ]
        for each in record.figures
    ]
    console.print_table([*headings, *(["LIMIT", "OF LIMIT"] if has_limit else [])], rows)
    reasons = dict.fromkeys(each.limit_name for each in record.figures if each.limit_name)
    if has_limit:
        console.print(f"limit: {'; '.join(reasons)}")
    console.print(describe_machine(record))


def _show_product(figure: Figure) -> list[str]:
    from kedge.tools.bench.computing import describe_product

    memory, seconds = describe_product(figure)
    return [format_size(memory), f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"]


def _show_scaling(point: ScalingPoint | None) -> list[str]:
    if point is None:
        return ["", ""]
    return [f"{point.speed_up:.2f}" if point.speed_up is not None else "", f"{100 * point.efficiency:.0f} %"]


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


def show_comparisons(records: Sequence[tuple[str, BenchRecord]], console: Console) -> None:
    """The ratio of each to the first, and what else differs."""
    from kedge.tools.bench.compare import compare_records

    (name, first), *others = records
    comparisons = [(other, compare_records(first, record)) for other, record in others]
    if console.json:
        if len(comparisons) == 1:
            console.print_json(comparisons[0][1].as_dict())
        else:
            compared = [{"name": other, **comparison.as_dict()} for other, comparison in comparisons]
            console.print_json({"bench": first.bench, "first": name, "comparisons": compared})
    elif len(comparisons) == 1:
        _show_two(comparisons[0][1], console)
    else:
        _show_many(name, first, comparisons, console)


def _show_many(
    name: str, first: BenchRecord, comparisons: Sequence[tuple[str, BenchComparison]], console: Console
) -> None:
    """A row for each figure of each record."""
    rows = []
    for figure in first.figures:
        rows.append(
            [figure.name, name, _show_value(figure.median, figure.unit), "1.000", f"{100 * figure.spread:.1f} %", ""]
        )
        for other, comparison in comparisons:
            rows += [
                [
                    *(
                        "",
                        other,
                        _show_value(each.second, each.unit),
                        f"{each.ratio:.3f}",
                        f"{100 * each.spread:.1f} %",
                    ),
                    console.paint(each.verdict, _VERDICTS.get(each.verdict, "note")),
                ]
                for each in comparison.figures
                if (each.name, each.unit) == (figure.name, figure.unit)
            ]
    console.print_table([first.bench.upper(), "RESULT", "MEDIAN", "RATIO", "SPREAD", "IT IS"], rows)
    for other, comparison in comparisons:
        for difference in comparison.differences:
            console.print(f"differs in {other}: {difference}")
        for which, names in ((name, comparison.only_first), (other, comparison.only_second)):
            if names:
                console.print(f"only in {which}: {', '.join(names)}")


def _show_two(comparison: BenchComparison, console: Console) -> None:
    """The ratios, and what else differs."""
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
