# SPDX-License-Identifier: BSD-3-Clause
"""Runs one command on all ranks of a launch, and returns what it prints instead of showing it."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import JsonValue, frozen, replace
from kedge.cluster.site import Site
from kedge.compat.bandwidth import (
    BandwidthReport,
    BandwidthRow,
    BandwidthVerdict,
    Link,
    choose_link,
    judge_bandwidth,
    parse_text,
)
from kedge.errors import LaunchFailed, LaunchRefused
from kedge.launch.check_world import INSIDE, bring_probe, check_world
from kedge.launch.contracts import Contract
from kedge.launch.follow_output import RankFailure
from kedge.launch.plan import LaunchPlan
from kedge.launch.prepare import plan_launch
from kedge.launch.probe import answers
from kedge.launch.probe.answers import MARK, read_failures, read_lines
from kedge.launch.probe.words import find_probe, probe_words
from kedge.launch.request import LaunchRequest
from kedge.launch.run_plan import run_plan
from kedge.system.process import run_program
from kedge.system.start_kedge import own_command
from kedge.tools.bench.machine import NetworkRates
from kedge.tools.bench.record import Figure, Repeats
from kedge.tools.bench.sweep import RANK, name_figure

# With what an allreduce can be measured in an image: nccl-tests, its torch over NCCL or Gloo, or its MPI.

NCCL_TESTS, NCCL, GLOO, MPI = "nccl-tests", "nccl", "gloo", "mpi"
WAYS = (NCCL_TESTS, NCCL, GLOO, MPI)
_PATIENCE = 300.0  # seconds: the image may have to be unpacked first
# What is looked for in the image, by its own shell: names of programs, and whether its Python has torch
_LOOK = """
for name in all_reduce_perf_mpi all_reduce_perf python3; do
    path=$(command -v "$name") && printf '{"kedge":"program","name":"%s","path":"%s"}\\n' "$name" "$path"
done
python3 -c 'import importlib.util as u; u.find_spec("torch") and print("{\\"kedge\\":\\"torch\\"}")' 2>/dev/null
true
"""


@frozen
class ImageTools:
    """What an image has to measure with."""

    programs: tuple[str, ...] = ()
    has_torch: bool = False
    has_mpi: bool = False


def look_for_tools(image: str, options: Sequence[str], environ: Mapping[str, str], *, has_mpi: bool) -> ImageTools:
    """Ask the image's own shell; an image without one has only its MPI to be measured with."""
    done = run_program(
        own_command("exec", *options, image, "sh", "-c", _LOOK),
        environment=environ,
        timeout=_PATIENCE,
        check=False,
        name="kedge exec",
    )
    found = list(read_lines(done.output.decode(errors="replace")))
    programs = tuple(str(value.get("name", "")) for value in found if value["kedge"] == "program")
    return ImageTools(programs, any(value["kedge"] == "torch" for value in found), has_mpi)


def choose_way(asked: str, tools: ImageTools, *, gpus: int, nodes: int) -> tuple[str, str]:
    """The way and the reason; raises LaunchRefused where the image lacks what was asked for."""
    possible = _list_possible(tools, gpus, nodes)
    if asked and asked != "auto":
        if asked in possible:
            return asked, f"--way {asked}"
        raise LaunchRefused(
            f"--way {asked} is not possible: {_explain_way(asked, tools, gpus, nodes)}", hint=_hint(possible)
        )
    if not possible:
        raise LaunchRefused(
            "the image has nothing to measure with: no nccl-tests, no torch and no MPI",
            hint="take an image with PyTorch or MPI, such as nvcr.io/nvidia/pytorch",
        )
    reasons = {
        NCCL_TESTS: "the image has nccl-tests",
        NCCL: "the image has torch, and there are GPUs",
        GLOO: "the image has torch, and there are no GPUs",
        MPI: "the image has MPI, and nothing for GPUs",
    }
    return possible[0], reasons[possible[0]]


def _list_possible(tools: ImageTools, gpus: int, nodes: int) -> list[str]:
    """The ways that work, the best first."""
    ways = []
    if gpus and (
        ("all_reduce_perf_mpi" in tools.programs and tools.has_mpi)
        or ("all_reduce_perf" in tools.programs and nodes == 1)
    ):
        ways.append(NCCL_TESTS)
    if tools.has_torch:
        ways += [NCCL, GLOO] if gpus else [GLOO]
    if tools.has_mpi:
        ways.insert(len(ways) if gpus or not tools.has_torch else 0, MPI)
    return ways


def _explain_way(asked: str, tools: ImageTools, gpus: int, nodes: int) -> str:
    if asked in (NCCL_TESTS, NCCL) and not gpus:
        return "there are no GPUs"
    if asked == NCCL_TESTS and "all_reduce_perf" in tools.programs and nodes > 1:
        return "the image's nccl-tests are built without MPI, which several nodes need"
    return {
        NCCL_TESTS: "the image has no all_reduce_perf",
        NCCL: "the image has no torch",
        GLOO: "the image has no torch",
        MPI: "the image has no MPI",
    }[asked]


def _hint(possible: Sequence[str]) -> str:
    return f"possible here: {', '.join(possible)}" if possible else "take an image with PyTorch or MPI"


_SHOWN = 12  # lines of an error
_LONGEST = 16 << 20  # characters that are kept


class _Kept:
    """What the ranks print: the results, and the rest for messages."""

    def __init__(self, result: tuple[str, ...] = ()) -> None:
        self.has_result = False
        self._result = result
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._size = 0

    def write(self, is_error: bool, text: str) -> None:
        """Keep a line."""
        self._size += len(text)
        self.has_result = self.has_result or (bool(self._result) and all(part in text for part in self._result))
        if self._size < _LONGEST:
            (self.errors if is_error else self.lines).append(text.rstrip("\n"))


def run_on_ranks(
    plan: LaunchPlan, environ: Mapping[str, str], seconds: float, result: tuple[str, ...] = ()
) -> list[str]:
    """The lines that the plan's command prints on all ranks; raises LaunchFailed where it fails or is late.

    `result` are parts of its last line, after which only the end of its libraries is left: some hang there.
    """
    return _run(plan, None, environ, seconds, result)


def run_probe(plan: LaunchPlan, environ: Mapping[str, str], seconds: float, command: str, **numbers: int) -> list[str]:
    """What the probe prints on all ranks."""
    probe = find_probe(os.uname().machine)
    if not probe:
        raise LaunchFailed(f"kedge has no probe for {os.uname().machine}", hint="use --way gloo, or another host")
    words = probe_words(INSIDE, command, numbers=numbers)
    last = f'"bytes":{numbers["bytes"]},' if "bytes" in numbers else ""  # a row per size, this one at the end
    return _run(bring_probe(plan, probe), words, environ, seconds, (f'{MARK}{command}"', last))


def _run(
    plan: LaunchPlan,
    command: Sequence[str] | None,
    environ: Mapping[str, str],
    seconds: float,
    result: tuple[str, ...] = (),
) -> list[str]:
    """`result` are parts of the line after which only MPI_Finalize or the like is left, which hangs in some MPIs."""
    kept = _Kept(result)
    end = run_plan(
        plan, environ, kept.write, _ignore, command=command, timeout=seconds, has_done_all=lambda: kept.has_result
    )
    if end.is_cut:
        return kept.lines
    if end.is_late:
        raise LaunchFailed(
            f"the measurement did not end within {seconds:g} s",
            context=_show_last(kept),
            hint="measure less, or wait longer: --timeout SECONDS",
        )
    if end.status:
        raise _explain(end.status, end.failure, kept)
    return kept.lines


def _explain(status: int, failure: RankFailure | None, kept: _Kept) -> LaunchFailed:
    failures = read_failures(kept.lines)
    who = f"rank {failure.rank} on {failure.host}" if failure and failure.rank is not None else "the launcher"
    return LaunchFailed(
        f"the measurement failed: {who} ended with status {status}" + (f": {failures[0].reason}" if failures else ""),
        context=_show_last(kept),
        hint="try the launch by itself: kedge launch --dry-run IMAGE COMMAND",
    )


def _show_last(kept: _Kept) -> dict[str, str]:
    """What the ranks printed last besides results, for an error."""
    said = [line for line in (*kept.lines, *kept.errors) if line.strip() and '{"kedge":"' not in line][-_SHOWN:]
    return {"said": "\n".join(said)} if said else {}


def _ignore(failure: RankFailure) -> None:
    """Ignore a failure of a rank: it is explained at the end."""


# `kedge bench allreduce`: how fast the ranks of a launch exchange data, against what the links between them carry.

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


# `kedge bench pi`: an integral over all ranks, whose answer does not depend on their number.


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


# The results of `pi` and `allreduce` as figures, to be recorded, plotted and compared as all others are.

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
