# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench allreduce`: how fast the ranks of a launch exchange data, against what the links between them carry."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.cluster.site import Site
from kedge.compat.bandwidth.judge import BandwidthVerdict, judge_bandwidth
from kedge.compat.bandwidth.links import Link, choose_link
from kedge.compat.bandwidth.nccl_tests import parse_text
from kedge.compat.bandwidth.report import BandwidthReport, BandwidthRow
from kedge.errors import LaunchFailed
from kedge.launch.check_world import check_world
from kedge.launch.contracts import Contract
from kedge.launch.plan import LaunchPlan
from kedge.launch.prepare import plan_launch
from kedge.launch.probe import answers
from kedge.launch.request import LaunchRequest
from kedge.tools.bench.record import Repeats
from kedge.tools.bench.run_ranks import run_on_ranks, run_probe
from kedge.tools.bench.surroundings import NetworkRates
from kedge.tools.bench.ways import GLOO, MPI, NCCL, NCCL_TESTS, ImageTools

_SCRIPT = Path(answers.__file__).with_name("allreduce_torch.py")
_NAMES = {NCCL: "NCCL", GLOO: "Gloo", MPI: "MPI", NCCL_TESTS: "nccl-tests"}


@frozen
class Measurement:
    """What is to be measured."""

    way: str  # of ways.WAYS
    bytes: int  # of the largest message
    rounds: int
    seconds: float  # that it may take
    repeats: Repeats = Repeats(0, 1)


@frozen
class AllreduceResult(JsonValue):
    """What was measured, and what is to be thought of it."""

    report: BandwidthReport  # the median of all runs
    verdict: BandwidthVerdict
    launcher: str
    link: Link | None = None
    reason: str = ""  # for the way that was taken
    timings: tuple[tuple[float, ...], ...] = ()  # of each row of the report: the seconds of each run


def plan_allreduce(
    request: LaunchRequest, measurement: Measurement, tools: ImageTools, site: Site, environ: Mapping[str, str]
) -> LaunchPlan:
    """The launch that measures it."""
    way = measurement.way
    if way in (NCCL, GLOO):
        words = ("python3", "-c", _SCRIPT.read_text(), way, str(measurement.bytes), str(measurement.rounds))
        request = replace(request, command=words, contract=Contract.RANKS, uses_mpi=False)
    elif way == NCCL_TESTS:
        request = _request_nccl_tests(request, measurement, tools)
    else:
        request = replace(request, command=("true",), contract=Contract.NONE, uses_mpi=True)
    return plan_launch(request, site, environ)


def _request_nccl_tests(request: LaunchRequest, measurement: Measurement, tools: ImageTools) -> LaunchRequest:
    """Request one rank for each GPU where nccl-tests knows MPI, else one process for all GPUs of this host."""
    sizes = ("-b", "8", "-e", str(measurement.bytes), "-f", "8", "-n", str(measurement.rounds))
    if "all_reduce_perf_mpi" in tools.programs and tools.has_mpi:
        return replace(request, command=("all_reduce_perf_mpi", *sizes, "-g", "1"), uses_mpi=True)
    gpus = str(request.tasks or request.tasks_per_node or 1)
    alone = replace(request, tasks=1, tasks_per_node=0, nodes=1, uses_mpi=False)
    return replace(alone, command=("all_reduce_perf", *sizes, "-g", gpus))


def measure_allreduce(
    plan: LaunchPlan, measurement: Measurement, environ: Mapping[str, str], *, rates: NetworkRates, checks: bool
) -> AllreduceResult:
    """Run it and judge it."""
    if checks and measurement.way in (MPI, NCCL_TESTS) and plan.shape.size > 1:
        check_world(plan, environ, measurement.seconds)
    reports = measurement.repeats.collect(lambda: _measure(plan, measurement, environ))
    report = merge_reports(reports)
    timings = tuple(tuple(row.seconds for row in rows) for rows in zip(*(each.rows for each in reports), strict=True))
    link = choose_link(len(report.hosts), report.devices, rates.fabric, rates.ethernet)
    return AllreduceResult(report, judge_bandwidth(report, link), plan.launcher, link, timings=timings)


def merge_reports(reports: Sequence[BandwidthReport]) -> BandwidthReport:
    """The median time of every size; a sum that was wrong once is wrong."""
    columns = zip(*(report.rows for report in reports), strict=True)
    rows = (
        replace(
            column[0], seconds=statistics.median(row.seconds for row in column), wrong=max(row.wrong for row in column)
        )
        for column in columns
    )
    return replace(reports[-1], rows=tuple(rows))


def _measure(plan: LaunchPlan, measurement: Measurement, environ: Mapping[str, str]) -> BandwidthReport:
    if measurement.way == NCCL_TESTS:
        return _read_nccl_tests(run_on_ranks(plan, environ, measurement.seconds))
    if measurement.way == MPI:
        numbers = {"bytes": measurement.bytes, "rounds": measurement.rounds}
        lines = run_probe(plan, environ, measurement.seconds, "allreduce", **numbers)
    else:
        last = (f'{answers.MARK}allreduce"', f'"bytes":{max(measurement.bytes // 4, 1) * 4},')
        lines = run_on_ranks(plan, environ, measurement.seconds, last)
    values = list(answers.read_lines(lines))
    report = make_report(_NAMES[measurement.way], plan.shape.size, values)
    if not report.hosts:
        report = replace(report, hosts=tuple(node.name for node in plan.shape.nodes))
    return replace(report, version=report.version or plan.order.mpi)


def make_report(way: str, ranks: int, values: Sequence[Mapping[str, Any]]) -> BandwidthReport:
    """From the lines of the probe, or of the script that stands in for it."""
    worlds = [value for value in values if value["kedge"] == "world"]
    rows = [value for value in values if value["kedge"] == "allreduce"]
    if len({value.get("pid") for value in rows}) > 1 or any(value.get("size") != ranks for value in rows):
        raise LaunchFailed(
            f"the ranks measured separately instead of as one world of {ranks}",
            hint="leave out --no-check to see why",
        )
    devices = (str(value.get("device", "")) for value in worlds)
    return BandwidthReport(
        way=way,
        ranks=ranks,
        hosts=tuple(dict.fromkeys(str(value.get("host", "")) for value in worlds)),
        devices=tuple(dict.fromkeys(name for name in devices if name)),
        rows=tuple(
            BandwidthRow(int(value["bytes"]), float(value["seconds"]), ranks, int(value.get("wrong", 0)))
            for value in rows
        ),
        version=str(worlds[0].get("version", "")) if worlds else "",
    )


def _read_nccl_tests(lines: Sequence[str]) -> BandwidthReport:
    reports = parse_text("\n".join(lines))
    if not reports:
        raise LaunchFailed(
            "nccl-tests printed no table", hint="run it by itself: kedge launch IMAGE all_reduce_perf_mpi"
        )
    if len(reports) > 1:
        raise LaunchFailed(
            f"nccl-tests measured {len(reports)} times apart: each process was alone",
            hint="the image's build has no MPI: use --way nccl",
        )
    return reports[0]
