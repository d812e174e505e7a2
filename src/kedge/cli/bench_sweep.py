# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps of `kedge bench`: the same on several numbers of ranks, nodes or GPUs, sizes, and in several partitions."""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.launch import read_count
from kedge.cli.options import Parser
from kedge.errors import KedgeError, UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.cluster.job import Job
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.submit import SubmitPlan
    from kedge.tools.bench.record import BenchRecord

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
