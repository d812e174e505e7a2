# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench compare`: figure by figure, whether one run was faster than another, or whether that is noise."""

from __future__ import annotations

from kedge.base.frozen import JsonValue, frozen
from kedge.errors import UsageError
from kedge.tools.bench.record import BenchRecord, Figure

SAME, FASTER, SLOWER = "within the spread", "faster", "slower"


@frozen
class FigureComparison(JsonValue):
    """A figure of both runs."""

    name: str
    unit: str
    first: float  # medians
    second: float
    ratio: float  # how many times as fast the second is
    spread: float  # the larger one of both, as a share of the median
    verdict: str


@frozen
class BenchComparison(JsonValue):
    """Two runs of the same bench."""

    bench: str
    figures: tuple[FigureComparison, ...]
    differences: tuple[str, ...]  # between the machines, images and programs
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()


def compare_records(first: BenchRecord, second: BenchRecord) -> BenchComparison:
    """The figures that both have; raises UsageError where there are none."""
    if first.bench != second.bench:
        raise UsageError(f"the records are of different benches: {first.bench} and {second.bench}")
    theirs = {(each.name, each.unit): each for each in second.figures}
    pairs = [(each, theirs[each.name, each.unit]) for each in first.figures if (each.name, each.unit) in theirs]
    if not pairs:
        raise UsageError(
            "the records have no figure in common",
            hint=f"measure the same sizes: {', '.join(each.name for each in first.figures[:4])}",
        )
    mine = {(each.name, each.unit) for each in first.figures}
    return BenchComparison(
        first.bench,
        tuple(_compare(*pair) for pair in pairs),
        tuple(_list_differences(first, second)),
        tuple(each.name for each in first.figures if (each.name, each.unit) not in theirs),
        tuple(each.name for each in second.figures if (each.name, each.unit) not in mine),
    )


def _compare(first: Figure, second: Figure) -> FigureComparison:
    ratio = first.median / second.median if first.is_time else second.median / first.median
    do_overlap = min(first.values) <= max(second.values) and min(second.values) <= max(first.values)
    verdict = SAME if do_overlap else FASTER if ratio > 1 else SLOWER
    return FigureComparison(
        name=first.name,
        unit=first.unit,
        first=first.median,
        second=second.median,
        ratio=ratio,
        spread=max(first.spread, second.spread),
        verdict=verdict,
    )


def _list_differences(first: BenchRecord, second: BenchRecord) -> list[str]:
    found = first.machine.list_differences(second.machine)
    names = {"image": "image", "digest": "digest", "program": "program", "kedge": "kedge"}
    for field, name in names.items():
        mine, theirs = getattr(first, field), getattr(second, field)
        if mine != theirs:
            absent = "none" if field in ("image", "digest") else "unknown"
            found.append(f"{name}: {mine or absent} and {theirs or absent}")
    return found
