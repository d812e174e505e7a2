# SPDX-License-Identifier: BSD-3-Clause
"""The results of `pi` and `allreduce` as figures, to be recorded, plotted and compared as all others are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.tools.bench.record import Figure
from kedge.tools.bench.sweep import RANK, name_figure

if TYPE_CHECKING:
    from kedge.compat.bandwidth.report import BandwidthRow
    from kedge.tools.bench.allreduce import AllreduceResult
    from kedge.tools.bench.pi import PiResult

_UNKNOWN = "unknown: links between the ranks"


def make_pi_figures(result: PiResult) -> tuple[Figure, ...]:
    """The time of the integral."""
    work = f"{result.intervals} intervals"
    figure = Figure("", "s", result.timings or (result.seconds,), None, "unknown: depends on the CPU", work=work)
    counted = replace(figure, workers=result.ranks, nodes=result.nodes)
    return (replace(counted, name=name_figure(counted, RANK)),)


def make_allreduce_figures(result: AllreduceResult) -> tuple[Figure, ...]:
    """The bus bandwidth of every size, against the link."""
    link = result.link
    rate, name = (link.rate, link.name) if link and link.rate else (None, _UNKNOWN)
    way = f"{result.report.way}, {result.report.ranks} ranks"
    rows = result.report.rows
    timings = result.timings or tuple((row.seconds,) for row in rows)
    return tuple(
        Figure(
            f"{row.bytes} B",
            *("GB/s", _list_bandwidths(row, seconds), rate, name, way, row.bytes),
            *(f"{row.bytes} B", result.report.ranks, len(result.report.hosts)),
        )
        for row, seconds in zip(rows, timings, strict=True)
        if row.bus_bandwidth > 0
    )


def _list_bandwidths(row: BandwidthRow, timings: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(replace(row, seconds=seconds).bus_bandwidth for seconds in timings)
