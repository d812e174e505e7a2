# SPDX-License-Identifier: BSD-3-Clause
"""The same work on more and more ranks, GPUs or nodes: one record of all runs, with speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Sequence

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.errors import UsageError
from kedge.tools.bench.record import BenchRecord, Figure

RANK, GPU = "rank", "GPU"
_BANDWIDTH = "GB/s"


@frozen
class ScalingPoint(JsonValue):
    """A figure beside the one with the fewest workers on the same work."""

    name: str
    work: str
    workers: int
    nodes: int
    speed_up: float | None  # times as fast as with the fewest; None: a bandwidth, which workers do not share
    efficiency: float  # speed-up for each worker more; of a bandwidth, what is left of it


def join_records(records: Sequence[BenchRecord], worker: str) -> BenchRecord:
    """Return one record with the figures of all, named after their ranks or GPUs where those differ."""
    figures = [figure for record in records for figure in record.figures]
    if not figures:
        raise UsageError("nothing was measured: one rank alone exchanges nothing", hint="take more: --ranks 2,4")
    has_workers = len({each.workers for each in figures}) > 1
    has_nodes = len({each.nodes for each in figures}) > 1
    if has_workers or has_nodes:
        figures = [replace(each, name=name_figure(each, worker, has_nodes=has_nodes)) for each in figures]
    return replace(records[0], figures=tuple(figures))


def name_figure(figure: Figure, worker: str, *, has_nodes: bool = False) -> str:
    """2 nodes 8 ranks 9000960 intervals."""
    nodes = f"{figure.nodes} node{'' if figure.nodes == 1 else 's'} " if has_nodes else ""
    return f"{nodes}{figure.workers} {worker}{'' if figure.workers == 1 else 's'} {figure.work}"


def list_scaling(record: BenchRecord) -> tuple[ScalingPoint, ...]:
    """A point for each figure; none where all figures have the same number of ranks, GPUs and nodes."""
    counted = [each for each in record.figures if each.work and each.workers]
    if len({(each.workers, each.nodes) for each in counted}) < 2:
        return ()
    fewest: dict[str, Figure] = {}
    for each in counted:
        first = fewest.setdefault(each.work, each)
        if (each.workers, each.nodes) < (first.workers, first.nodes):
            fewest[each.work] = each
    return tuple(_compare(each, fewest[each.work]) for each in counted)


def _compare(figure: Figure, first: Figure) -> ScalingPoint:
    ratio = first.median / figure.median if figure.is_time else figure.median / first.median
    has_shared = figure.unit != _BANDWIDTH
    return ScalingPoint(
        *(figure.name, figure.work, figure.workers, figure.nodes),
        ratio if has_shared else None,
        ratio * first.workers / figure.workers if has_shared else ratio,
    )
