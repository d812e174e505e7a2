# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench pi` and `allreduce`: checks before the first real run, of all ranks and of the network between them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.bench_record import add_record_options, add_repeats, read_repeats
from kedge.cli.bench_sweep import add_on, read_counts
from kedge.cli.launch import add_container_flags, add_launcher, read_container_options, read_count
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.base.frozen import JsonValue
    from kedge.cli.console import Console
    from kedge.launch.plan import LaunchPlan
    from kedge.launch.request import LaunchRequest
    from kedge.tools.bench.allreduce import AllreduceResult
    from kedge.tools.bench.pi import PiResult
    from kedge.tools.bench.record import BenchRecord
    from kedge.tools.bench.ways import ImageTools

_HOST = "/"  # the host's own root is an image, too
_WAYS = ("auto", "nccl-tests", "nccl", "gloo", "mpi")
_FOR_GPUS = ("nccl-tests", "nccl")  # taken at their word where the number of GPUs is unknown
_VERDICTS = {"good": "good", "low": "warning", "poor": "warning", "wrong": "bad", "unknown": "note"}


def add_rank_benches(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands: what is measured, on how many ranks, in which container."""
    pi = commands.add_parser("pi", help="Compute pi with MPI: the same answer on any number of ranks")
    _add_launch(pi)
    pi.add_argument(
        "--intervals",
        type=read_counts,
        metavar="N,N",
        default=(9_000_000,),
        help="steps of the integral (default: 9000000)",
    )
    allreduce = commands.add_parser("allreduce", help="Measure bandwidth between ranks against what the links carry")
    _add_launch(allreduce)
    allreduce.add_argument(
        "--way", choices=_WAYS, default="auto", metavar="WAY", help=f"{', '.join(_WAYS)} (default: auto)"
    )
    allreduce.add_argument("--bytes", metavar="SIZE", default="64M", help="largest message (default: 64M)")
    allreduce.add_argument("--rounds", type=read_count, metavar="N", default=40, help="repetitions (default: 40)")
    for command, warmup in ((pi, 1), (allreduce, 0)):  # each size of an allreduce has its own warm-up
        add_repeats(command, warmup=warmup, repeats=3, seconds=300.0)
        add_record_options(command)
        add_on(command)
        add_container_flags(command)
        add_settings(command, "site")


def _add_launch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image", nargs="?", default=_HOST, metavar="IMAGE", help="image (default: this host's own MPI and Python)"
    )
    size = parser.add_argument_group("size (default: as the job was allocated)")
    size.add_argument("-N", "--nodes", type=read_counts, metavar="N,N", default=0, help="use the first N nodes")
    size.add_argument(
        *("-n", "--ranks", "--tasks"),
        dest="tasks",
        type=read_counts,
        metavar="N,N",
        default=0,
        help="start N ranks on all nodes; several numbers are measured in turn: 1,2,4,8",
    )
    size.add_argument("--tasks-per-node", type=read_count, metavar="N", default=0, help="start N ranks on each node")
    start = parser.add_argument_group("how the ranks start")
    add_launcher(start, "program that starts ranks", "auto")
    start.add_argument("--mpi-type", metavar="TYPE", default="auto", help="PMI that srun offers (default: auto)")
    start.add_argument("--no-check", action="store_true", help="do not check first that all ranks find each other")


def run_rank_bench(arguments: argparse.Namespace, console: Console) -> BenchRecord:
    """Plan, check, measure, judge, show."""
    from kedge.tools.bench.machine import make_record, read_machine
    from kedge.tools.bench.rank_figures import make_allreduce_figures, make_pi_figures

    if arguments.command == "pi":
        pi = _run_pi(arguments, console)
        record = make_record("pi", make_pi_figures(pi), read_machine(), image=arguments.image, program=pi.mpi)
        shown: JsonValue = pi
        if not arguments.is_swept:
            _show_pi(pi, console)
    else:
        result = _run_allreduce(arguments, console)
        program = result.report.version or result.report.way
        figures = make_allreduce_figures(result)
        record = make_record("allreduce", figures, read_machine(), image=arguments.image, program=program)
        shown = result
        if not arguments.is_swept:
            _show_allreduce(result, console)
    if console.json and not arguments.is_swept:
        console.print_json({**shown.as_dict(), **record.as_dict()})
    return record


def _read_request(arguments: argparse.Namespace, *more: str) -> LaunchRequest:
    from kedge.launch.request import LaunchRequest

    return LaunchRequest(
        image=arguments.image,
        command=("true",),
        options=(*read_container_options(arguments), *more),
        nodes=arguments.nodes,
        tasks=arguments.tasks,
        tasks_per_node=arguments.tasks_per_node,
        launcher=arguments.launcher,
        launcher_options=tuple(arguments.launcher_option),
        mpi_type=arguments.mpi_type,
        uses_mpi=True,
    )


def _run_pi(arguments: argparse.Namespace, console: Console) -> PiResult:
    from kedge.cluster.sites.find_site import choose_site
    from kedge.launch.check_world import check_world
    from kedge.launch.prepare import plan_launch
    from kedge.tools.bench.pi import measure_pi

    plan = plan_launch(_read_request(arguments), choose_site(console.settings, console.environ), console.environ)
    _tell_reasons(plan, console)
    if plan.shape.size > 1 and not arguments.no_check:
        console.progress.detail(check_world(plan, console.environ, arguments.timeout, console.progress.warn))
    repeats = read_repeats(arguments)
    return measure_pi(plan, console.environ, repeats, intervals=arguments.intervals, seconds=arguments.timeout)


def _run_allreduce(arguments: argparse.Namespace, console: Console) -> AllreduceResult:
    from kedge.base.frozen import replace
    from kedge.cluster.memory import parse_memory
    from kedge.cluster.sites.find_site import choose_site
    from kedge.tools.bench.allreduce import Measurement, measure_allreduce, plan_allreduce
    from kedge.tools.bench.surroundings import count_gpus, count_nodes, read_rates
    from kedge.tools.bench.ways import choose_way

    counted = count_gpus(console.environ)
    gpus = int(arguments.way in _FOR_GPUS) if counted is None else counted
    has_nv = "--nv" in read_container_options(arguments)
    request = _read_request(arguments, *(["--nv"] if gpus and not has_nv else []))
    site = choose_site(console.settings, console.environ)
    tools = _find_tools(request, console)
    way, reason = choose_way(arguments.way, tools, gpus=gpus, nodes=request.nodes or count_nodes(console.environ))
    console.progress.detail(f"allreduce by {way}: {reason}")
    measurement = Measurement(
        way, parse_memory(arguments.bytes), arguments.rounds, arguments.timeout, read_repeats(arguments)
    )
    plan = plan_allreduce(request, measurement, tools, site, console.environ)
    _tell_reasons(plan, console)
    result = measure_allreduce(
        plan, measurement, console.environ, rates=read_rates(console.environ), checks=not arguments.no_check
    )
    return replace(result, reason=reason)


def _find_tools(request: LaunchRequest, console: Console) -> ImageTools:
    from kedge.compat.mpi_for_launch import read_launched_mpi
    from kedge.tools.bench.ways import look_for_tools

    image = read_launched_mpi(request.image, console.environ)
    return look_for_tools(request.image, request.options, console.environ, has_mpi=image.mpi is not None)


def _tell_reasons(plan: LaunchPlan, console: Console) -> None:
    for reason in plan.reasons:
        console.progress.detail(reason)


def _show_pi(result: PiResult, console: Console) -> None:
    from kedge.tools.bench.rank_figures import make_pi_figures

    if console.json:
        return
    nodes = f" on {result.nodes} nodes" if result.nodes > 1 else ""
    by = f" ({result.mpi}, {result.launcher})" if result.mpi else f" ({result.launcher})"
    console.print(f"π = {result.pi:.12f} by {result.ranks} ranks{nodes} in {result.seconds:.3f} s{by}")
    (figure,) = make_pi_figures(result)
    runs = f", median of {len(figure.values)} runs, spread {figure.spread:.0%}" if len(figure.values) > 1 else ""
    console.print(f"  error {result.error:.1e}, {result.intervals} intervals{runs}")


def _show_allreduce(result: AllreduceResult, console: Console) -> None:
    report, verdict = result.report, result.verdict
    if console.json:
        return
    rows = [
        [
            _show_size(row.bytes),
            _show_time(row.seconds),
            f"{(max(timings) - min(timings)) / row.seconds:.0%}" if row.seconds else "",
            _show_rate(row.algorithm_bandwidth),
            _show_rate(row.bus_bandwidth),
        ]
        for row, timings in zip(report.rows, result.timings, strict=True)
    ]
    hosts = f" on {len(report.hosts)} hosts" if len(report.hosts) > 1 else ""
    with_what = f" ({report.version})" if report.version else ""
    console.print(f"allreduce by {report.way}{with_what}: {report.ranks} ranks{hosts}, {result.launcher}")
    console.print_table(["SIZE", "TIME", "SPREAD", "ALGBW", "BUSBW"], rows)
    console.print(console.paint(f"{verdict.level}: {verdict.sentence}", _VERDICTS[verdict.level]))
    if verdict.remedy:
        console.print_hanging("  ", verdict.remedy)


def _show_size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}" if count % size == 0 else f"{count / size:.1f} {unit}"
    return f"{count} B"


def _show_time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _show_rate(rate: float) -> str:
    return f"{rate:.2f} GB/s" if rate >= 0.01 else f"{rate * 1e3:.2f} MB/s"
