# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench pi`: an integral over all ranks, whose answer does not depend on their number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.errors import LaunchFailed
from kedge.launch.plan import LaunchPlan
from kedge.launch.probe.answers import read_lines
from kedge.tools.bench.record import Repeats
from kedge.tools.bench.run_ranks import run_probe


@frozen
class PiResult(JsonValue):
    """What the ranks computed."""

    ranks: int
    nodes: int
    pi: float
    intervals: int
    seconds: float  # the median
    launcher: str
    mpi: str = ""
    timings: tuple[float, ...] = ()  # seconds of each run

    json_also = ("error",)

    @property
    def error(self) -> float:
        """The distance from π."""
        return abs(self.pi - math.pi)


def measure_pi(
    plan: LaunchPlan, environ: Mapping[str, str], repeats: Repeats, *, intervals: int, seconds: float
) -> PiResult:
    """Compute it on all ranks of the plan, again and again."""
    results = repeats.collect(lambda: _compute(plan, environ, intervals, seconds))
    timings = tuple(result.seconds for result in results)
    return replace(results[-1], seconds=statistics.median(timings), timings=timings)


def _compute(plan: LaunchPlan, environ: Mapping[str, str], intervals: int, seconds: float) -> PiResult:
    lines = run_probe(plan, environ, seconds, "pi", intervals=intervals)
    values = [value for value in read_lines(lines) if value["kedge"] == "pi"]
    if len(values) != 1 or values[0].get("size") != plan.shape.size:
        raise LaunchFailed(
            f"{len(values)} programs gave an answer instead of one of {plan.shape.size} ranks",
            hint="the ranks did not find each other: leave out --no-check to see why",
        )
    (value,) = values
    return PiResult(
        ranks=plan.shape.size,
        nodes=plan.shape.node_count,
        pi=float(value["pi"]),
        intervals=int(value["intervals"]),
        seconds=float(value["seconds"]),
        launcher=plan.launcher,
        mpi=plan.order.mpi,
    )
