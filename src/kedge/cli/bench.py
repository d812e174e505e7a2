# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench`: how fast this host, its network, its containers and its registry are, and how runs compare."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.bench_ranks import add_rank_benches, run_rank_bench
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
from kedge.cli.bench_sweep import add_on, list_points, measure_on, read_counts, run_points
from kedge.cli.launch import add_container_flags, read_container_options, read_count

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.tools.bench.programs import ProgramPlace
    from kedge.tools.bench.record import BenchRecord, Figure

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
