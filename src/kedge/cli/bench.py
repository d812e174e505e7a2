# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench`: how fast this host, its network, its containers and its registry are, and how runs compare."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.bench_record import (
    add_plot,
    add_record_options,
    add_repeats,
    check_places,
    keep_record,
    keep_records,
    read_repeats,
    show_comparisons,
    show_record,
)
from kedge.cli.launch import add_container_flags, add_launcher, read_container_options, read_count
from kedge.cli.options import Parser, add_settings
from kedge.errors import KedgeError, UsageError

if TYPE_CHECKING:
    from kedge.base.frozen import JsonValue
    from kedge.cli.console import Console
    from kedge.cluster.job import Job
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.submit import SubmitPlan
    from kedge.launch.plan import LaunchPlan
    from kedge.launch.request import LaunchRequest
    from kedge.tools.bench.programs import ProgramPlace
    from kedge.tools.bench.record import BenchRecord, Figure
    from kedge.tools.bench.run_ranks import AllreduceResult, ImageTools, PiResult

_HOST = "/"  # the host's own root is an image, too
_RANKS = ("pi", "allreduce")
_VENDORS = ("--nv", "--nvccli", "--rocm")


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_matmul(commands)
    _add_nbody(commands)
    add_rank_benches(commands)
    start = commands.add_parser("start", help="Time the start of a container")
    start.add_argument("image", metavar="IMAGE", help="image to start")
    add_repeats(start, warmup=2, repeats=20)
    pull = commands.add_parser("pull", help="Time pulls of an image into an empty cache")
    pull.add_argument("image", metavar="REFERENCE", help="image to pull, such as docker://ubuntu:24.04")
    add_repeats(pull, warmup=0, repeats=3, seconds=3600.0)
    for command in (start, pull):
        add_record_options(command)
    add_container_flags(start)
    compare = commands.add_parser("compare", help="Compare results: ratio, spread, and what else differs")
    compare.add_argument("first", type=Path, metavar="A.json", help="result that --output wrote")
    compare.add_argument("others", type=Path, nargs="+", metavar="B.json", help="results to compare with it")
    add_plot(compare)


def _add_matmul(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    matmul = commands.add_parser("matmul", help="Multiply matrices: GFLOP/s against the GPU's or CPU's rate")
    _add_place(matmul)
    matmul.add_argument("--sizes", metavar="N,N", help="rows of the matrices (default: 256 to 16384; CPU: to 2048)")
    matmul.add_argument(
        "--types",
        metavar="TYPE,TYPE",
        help="float32, float64, tf32, bf16, float16 (default: float32,tf32,bf16; CPU: float32,float64)",
    )
    matmul.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    add_repeats(matmul, warmup=2, repeats=5)
    add_record_options(matmul)
    add_on(matmul)
    add_container_flags(matmul)


def _add_nbody(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    nbody = commands.add_parser("nbody", help="Attract bodies, all pairs: GFLOP/s against the GPU's or CPU's rate")
    _add_place(nbody)
    nbody.add_argument("--bodies", type=read_counts, metavar="N,N", help="bodies (default: 1024 per multiprocessor)")
    nbody.add_argument("--iterations", type=read_count, metavar="N", default=10, help="steps (default: 10)")
    nbody.add_argument(
        "--gpus", "--devices", type=read_counts, metavar="N,N", help="GPUs that share the bodies (default: 1)"
    )
    nbody.add_argument("--fp64", action="store_true", help="double precision")
    nbody.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    add_repeats(nbody, warmup=1, repeats=3)
    add_record_options(nbody)
    add_on(nbody)
    add_container_flags(nbody)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image", nargs="?", default=_HOST, metavar="IMAGE", help="image with Python (default: this host's own system)"
    )
    parser.add_argument("--outside", action="store_true", help="run without a container, to compare")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, show, keep; or compare."""
    if arguments.command == "compare":
        return _compare(arguments, console)
    check_places(arguments)
    if getattr(arguments, "on", ""):
        return _run_on(arguments, console)
    measure = run_rank_bench if arguments.command in _RANKS else _measure
    points = list_points(arguments)
    record, status = run_points(points, console, lambda point: measure(point, console))
    if arguments.command not in _RANKS or len(points) > 1:
        show_record(record, console)
    keep_record(record, arguments, console)
    return status


def _run_on(arguments: argparse.Namespace, console: Console) -> int:
    """Measure as jobs of several queues and print one table of all; returns the exit status."""
    records = measure_on(arguments, console)
    if len(records) == 1:
        show_record(records[0][1], console)
    else:
        show_comparisons(records, console)
    keep_records(records, arguments, console)
    return 0


def _compare(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.tools.bench.record import read_record

    check_places(arguments)
    paths = (arguments.first, *arguments.others)
    records = [(str(path), read_record(path)) for path in paths]
    show_comparisons(records, console)
    keep_records(records, arguments, console)
    return 0


def _measure(arguments: argparse.Namespace, console: Console) -> BenchRecord:
    from kedge.base.frozen import replace
    from kedge.tools.bench.containers import measure_pull, measure_start
    from kedge.tools.bench.machine import make_record, read_machine

    repeats = read_repeats(arguments)
    machine, seconds, environ = read_machine(), arguments.timeout, console.environ
    name, image = arguments.command, arguments.image
    if name == "start":
        figures = measure_start(image, read_container_options(arguments), repeats, seconds, environ)
        return make_record(name, figures, machine, image=image)
    if name == "pull":
        figures, digest = measure_pull(image, repeats, seconds, environ)
        return replace(make_record(name, figures, machine, image=image), digest=digest)
    where = _find_place(arguments, has_gpus=bool(machine.gpus))
    figures, program = _compute(arguments, where, console)
    return make_record(name, figures, machine, image=where.image, program=program)


def _find_place(arguments: argparse.Namespace, *, has_gpus: bool) -> ProgramPlace:
    """The container, with --nv where there are GPUs to be used; or none."""
    from kedge.tools.bench.programs import ProgramPlace

    options = read_container_options(arguments)
    wants_gpu = arguments.device == "cuda" or (has_gpus and arguments.device == "auto")
    if wants_gpu and not any(vendor in options for vendor in _VENDORS):
        options.append("--nv")
    image = "" if arguments.outside else arguments.image
    return ProgramPlace(image, tuple(options), arguments.timeout, has_gpus=wants_gpu)


def _compute(arguments: argparse.Namespace, where: ProgramPlace, console: Console) -> tuple[tuple[Figure, ...], str]:
    from kedge.tools.bench.computing import measure_matmul, measure_nbody

    repeats = read_repeats(arguments)
    if arguments.command == "matmul":
        words = ["--device", arguments.device]
        words += ["--sizes", arguments.sizes] if arguments.sizes else []
        words += ["--types", arguments.types] if arguments.types else []
        return measure_matmul(words, repeats, where, console.environ)
    words = [f"-iterations={arguments.iterations}"]
    words += [f"-numbodies={arguments.bodies}"] if arguments.bodies else []
    words += [f"-numdevices={arguments.gpus}"] if arguments.gpus else []
    words += ["-fp64"] if arguments.fp64 else []
    words += [] if where.has_gpus else ["-cpu"]
    return measure_nbody(words, repeats, where, console.environ)


# `kedge bench pi` and `allreduce`: checks before the first real run, of all ranks and of the network between them.

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
    from kedge.tools.bench.run_ranks import make_allreduce_figures, make_pi_figures

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
    from kedge.tools.bench.run_ranks import measure_pi

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
    from kedge.tools.bench.machine import count_gpus, count_nodes, read_rates
    from kedge.tools.bench.run_ranks import Measurement, choose_way, measure_allreduce, plan_allreduce

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
    from kedge.tools.bench.run_ranks import look_for_tools

    image = read_launched_mpi(request.image, console.environ)
    return look_for_tools(request.image, request.options, console.environ, has_mpi=image.mpi is not None)


def _tell_reasons(plan: LaunchPlan, console: Console) -> None:
    for reason in plan.reasons:
        console.progress.detail(reason)


def _show_pi(result: PiResult, console: Console) -> None:
    from kedge.tools.bench.run_ranks import make_pi_figures

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


# Sweeps of `kedge bench`: the same on several numbers of ranks, nodes or GPUs, sizes, and in several partitions.

_SWEPT = {"nodes": "nodes", "tasks": "ranks", "gpus": "GPUs", "bodies": "bodies", "intervals": "intervals"}
_MOST = 64  # runs


def read_counts(text: str) -> tuple[int, ...]:
    """Numbers with commas between them, each once."""
    return tuple(dict.fromkeys(read_count(part.strip()) for part in text.split(",")))


def add_on(parser: argparse.ArgumentParser) -> None:
    """`--on`, and what its jobs need besides."""
    jobs = parser.add_argument_group("on other nodes")
    jobs.add_argument(
        "--on", metavar="QUEUE,QUEUE", default="", help="submit it to these partitions or queues, wait, and compare"
    )
    jobs.add_argument(
        "--job-option",
        action="append",
        metavar="OPTION",
        default=[],
        help="option of kedge submit for these jobs, such as --job-option=--time=30m; repeatable",
    )


def list_points(arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """The arguments of each run: every combination of the numbers that were given."""
    names = [name for name in _SWEPT if getattr(arguments, name, None)]
    values = [getattr(arguments, name) for name in names]
    points = [
        argparse.Namespace(**{**vars(arguments), **dict(zip(names, chosen, strict=True))})
        for chosen in itertools.product(*values)
    ]
    if len(points) > _MOST:
        raise UsageError(f"these options ask for {len(points)} runs; at most {_MOST} are possible")
    for point in points:
        point.is_swept = len(points) > 1  # then one table shows all of them
    return points


def run_points(
    points: Sequence[argparse.Namespace], console: Console, measure: Callable[[argparse.Namespace], BenchRecord]
) -> tuple[BenchRecord, int]:
    """Return one record of all runs that succeed, and the exit code of the first that failed. Raises if all do."""
    from kedge.tools.bench.sweep import GPU, RANK, join_records

    if len(points) == 1:
        return measure(points[0]), 0
    records: list[BenchRecord] = []
    problems: list[KedgeError] = []
    for number, point in enumerate(points, 1):
        chosen = [f"{word} {getattr(point, name)}" for name, word in _SWEPT.items() if getattr(point, name, None)]
        run = f"Run {number} of {len(points)} ({', '.join(chosen)})"
        console.progress.note(run)
        try:
            records.append(measure(point))
        except KedgeError as problem:
            problems.append(problem)
            console.progress.warn(f"{run} failed: {problem.message}")
            continue
        if not records[-1].figures:
            console.progress.warn(f"{run} measured nothing: one rank alone exchanges no data")
    if not records:
        raise problems[0]
    joined = join_records(records, GPU if points[0].command == "nbody" else RANK)
    return joined, problems[0].exit_code if problems else 0


def measure_on(arguments: argparse.Namespace, console: Console) -> list[tuple[str, BenchRecord]]:
    """The record of each queue: the same command as a job there, all at once."""
    from kedge.jobs.cluster import open_cluster
    from kedge.jobs.job_handle import JobHandle
    from kedge.jobs.submit import submit
    from kedge.tools.bench.record import read_record

    queues = [name.strip() for name in arguments.on.split(",") if name.strip()]
    if console.environ.get("KEDGE_JOB_NAME") == f"bench-{arguments.command}":
        raise UsageError("--on cannot be used in a job of --on: it would submit itself again and again")
    if not queues:
        raise UsageError(f"--on '{arguments.on}' names no partition or queue", hint="such as --on alpha,capella")
    folder = Path(tempfile.mkdtemp(prefix="kedge-bench-", dir=Path.cwd()))  # nodes share this directory, not /tmp
    jobs = [(queue, folder / f"{number}.json") for number, queue in enumerate(dict.fromkeys(queues))]
    handles: list[JobHandle] = []
    records = []
    try:
        cluster = open_cluster(console.settings, console.environ)
        plans = [_plan(_make_job(arguments, queue, output), cluster, console) for queue, output in jobs]
        for plan in plans:
            handles.append(JobHandle(cluster, submit(plan).record))  # noqa: PERF401 - those before one that fails count
        for handle, (queue, output) in zip(handles, jobs, strict=True):
            console.progress.note(f"Waiting for job {handle.id} in {queue}")
            handle.wait(check=True)
            records.append((queue, read_record(output)))
    except BaseException:
        if not handles:
            shutil.rmtree(folder)
            raise
        ids = " ".join(each.id for each in handles)
        console.progress.warn(
            f"Output and results of the jobs are in {folder}; to end those that run: kedge cancel {ids}"
        )
        raise
    shutil.rmtree(folder)
    return records


def _make_job(arguments: argparse.Namespace, queue: str, output: Path) -> Job:
    """The job of one queue, as large as the largest run."""
    from kedge.cli.job_options import add_job_options, read_job_options
    from kedge.cluster.job import Job
    from kedge.system.start_kedge import own_command

    parser = Parser(prog="kedge bench --job-option")
    add_job_options(parser)
    gpus = max(arguments.gpus) if getattr(arguments, "gpus", None) else 1
    needs_gpus = arguments.command in ("matmul", "nbody") and arguments.device != "cpu"
    base = Job(
        name=f"bench-{arguments.command}",
        command=tuple(own_command("bench", *_list_own_words(sys.argv), "--output", str(output))),
        queue=queue,
        nodes=max(arguments.nodes) if getattr(arguments, "nodes", None) else None,
        tasks=max(arguments.tasks) if getattr(arguments, "tasks", None) else None,
        gpus_per_node=gpus if needs_gpus else None,
        output=str(output.with_suffix(".log")),
    )
    return read_job_options(parser.parse_args(arguments.job_option), base)


def _list_own_words(words: Sequence[str]) -> list[str]:
    """What stands after `bench`, without what is for this process alone."""
    own = Parser(prog="kedge bench", add_help=False)
    own.add_argument("--plot", action="append")
    for name in ("--on", "--job-option", "--output"):
        own.add_argument(name)
    _, kept = own.parse_known_args(list(words)[list(words).index("bench") + 1 :])
    return list(kept)


def _plan(job: Job, cluster: Cluster, console: Console) -> SubmitPlan:
    from kedge.jobs.submit import plan_submit

    plan = plan_submit(job, cluster, console.settings, console.environ, str(Path.cwd()))
    for warning in plan.warnings:
        console.progress.warn(warning)
    return plan
