# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch`: a program in containers on all nodes of a job, as tasks, ranks of MPI, or by torchrun."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run, add_settings
from kedge.cluster.job import LAUNCHERS
from kedge.cluster.mpi import MODES
from kedge.container.options import FLAGS, Flag
from kedge.errors import UsageError
from kedge.launch.contracts import Contract, name_task

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.launch.follow_output import RankFailure
    from kedge.launch.plan import LaunchPlan
    from kedge.launch.request import LaunchRequest

_PREFIX = "container_"
_SHOWN = ("nv", "bind", "env", "pwd", "home", "cleanenv", "contain", "writable-tmpfs", "overlay")  # in --help
_HIDDEN_GROUPS = ("messages",)
_OWN = ("record", "record-to")  # options of `exec` that a launch takes for all ranks
_WAYS = {"mpi": Contract.NONE, "tasks": Contract.NONE, "ranks": Contract.RANKS, "torchrun": Contract.TORCHRUN}


def configure(parser: argparse.ArgumentParser) -> None:
    """How many, started how; and the options of the container."""
    parser.add_argument("image", metavar="IMAGE", help="image, as for kedge exec")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="[COMMAND [ARGUMENT ...]]", help="default: the image's own command"
    )
    size = parser.add_argument_group("size (default: as the job was allocated)")
    size.add_argument("-N", "--nodes", type=read_count, metavar="N", default=0, help="use the first N nodes")
    size.add_argument(
        "-n", "--tasks", type=read_count, metavar="N", default=0, help="start N tasks on all nodes together"
    )
    size.add_argument("--tasks-per-node", type=read_count, metavar="N", default=0, help="start N tasks on each node")
    size.add_argument(
        "--processes",
        type=read_count,
        metavar="N",
        default=0,
        help="processes of torchrun per node (default: its GPUs)",
    )
    _add_ways(parser.add_argument_group("how the program starts"))
    check = parser.add_argument_group("check of the ranks")
    check.add_argument("--no-check", action="store_true", help="start without checking that all ranks find each other")
    check.add_argument(
        "--check-timeout",
        type=read_seconds,
        metavar="SECONDS",
        default=60.0,
        help="time limit of the check (default: 60)",
    )
    check.add_argument("--label", action="store_true", help="begin every line with its rank")
    parser.add_argument("--record", action="store_true", help="write a record of the run to kedge-run-….json")
    parser.add_argument("--record-to", metavar="FILE", default="", help="write the record to FILE")
    add_container_flags(parser)
    add_settings(parser, "site")
    add_dry_run(parser)


def _add_ways(options: argparse._ArgumentGroup) -> None:
    options.add_argument(
        "--parallel",
        choices=tuple(_WAYS),
        metavar="HOW",
        help="mpi (ranks of MPI), tasks (without MPI), ranks (RANK, WORLD_SIZE … per task), torchrun (per node)"
        " (default: mpi if the image has one, else tasks)",
    )
    for flag, value in (("--mpi", "mpi"), ("--each-task", "tasks"), ("--ranks", "ranks"), ("--torchrun", "torchrun")):
        options.add_argument(
            flag, dest="parallel", action="store_const", const=value, help=f"the same as --parallel {value}"
        )
    options.add_argument(
        "--contract",
        choices=tuple(str(each) for each in Contract),
        metavar="NAME",
        help=f"variables that the program expects: {', '.join(Contract)}",
    )
    options.add_argument("--runscript", action="store_true", help="pass the command to the image's run script")
    options.add_argument(
        "--least-nodes", type=read_count, metavar="N", default=0, help="elastic: start with N nodes (default: all)"
    )
    options.add_argument(
        "--restarts", type=int, metavar="N", default=0, help="elastic: restart failed processes N times (default: 0)"
    )
    add_launcher(options, "program that starts tasks", "auto, which --dry-run explains")
    options.add_argument(
        "--mpi-mode",
        choices=("auto", *MODES),
        default="auto",
        metavar="MODE",
        help="hybrid (the host's mpirun), bind (the host's MPI in the container), pmi (srun alone), contained (the"
        " image's mpirun, one node) (default: auto; 'kedge mpi check IMAGE' judges all)",
    )
    options.add_argument(
        "--mpi-type", metavar="TYPE", default="auto", help="PMI that srun offers: pmix, pmi2, none (default: auto)"
    )


def add_launcher(options: argparse._ArgumentGroup, what: str, default: str) -> None:
    """`--launcher` and the options that it gets."""
    names = [name for name in LAUNCHERS if name != "none"]
    options.add_argument(
        "--launcher",
        choices=("auto", *names),
        default="auto",
        metavar="PROGRAM",
        help=f"{what}: {', '.join(names)} (default: {default})",
    )
    options.add_argument(
        "--launcher-option", action="append", metavar="OPTION", default=[], help="option for the launcher; repeatable"
    )


def add_container_flags(parser: argparse.ArgumentParser) -> None:
    """Every option of `kedge exec` that is not taken; few are shown."""
    section = parser.add_argument_group("container (and every other option of kedge exec)")
    taken = set(parser._option_string_actions)
    for flag in _list_flags():
        names = [*(["-" + flag.short] if flag.short else []), *("--" + name for name in flag.names)]
        free = [name for name in names if name not in taken]
        text = flag.help if flag.names[0] in _SHOWN else argparse.SUPPRESS
        kept = _PREFIX + flag.names[0]
        if not free:
            continue
        if flag.takes_value:
            section.add_argument(*free, dest=kept, metavar=flag.metavar, action="append", help=text)
        else:
            section.add_argument(*free, dest=kept, action="store_true", help=text)


def _list_flags() -> list[Flag]:
    return [
        flag
        for flag in FLAGS
        if "exec" in flag.verbs and flag.group not in _HIDDEN_GROUPS and flag.names[0] not in _OWN
    ]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Plan, check, launch."""
    from kedge.base.secret_text import mask_words
    from kedge.cluster.sites.find_site import find_site
    from kedge.launch.prepare import make_image_ready, plan_launch

    request = _read_request(arguments)
    site = find_site(console.settings, console.environ, console.progress.warn)
    if not console.dry_run:
        request = make_image_ready(request, console.settings, console.environ, console.progress.warn)
    plan = plan_launch(request, site, console.environ)
    if console.dry_run:
        _show(plan, console)
        return 0
    if plan.warning:
        console.progress.warn(plan.warning)
    for reason in plan.reasons:
        console.progress.detail(reason)
    console.progress.detail(shlex.join(mask_words(plan.list_processes()[0].argv)))
    if needs_check(plan, request):
        from kedge.launch.check_world import check_world

        console.progress.detail(check_world(plan, console.environ, request.check_seconds, console.progress.warn))
    if arguments.record or arguments.record_to:
        from kedge.cli.record_launch import run_recorded  # late: few launches are recorded

        return run_recorded(arguments, plan, console, lambda: _launch(plan, request, console))
    return _launch(plan, request, console)


def _launch(plan: LaunchPlan, request: LaunchRequest, console: Console) -> int:
    from kedge.launch.run_plan import run_plan

    end = run_plan(
        plan,
        console.environ,
        _write,
        lambda failure: _tell(failure, plan.contract, console),
        shows_rank=request.is_labelled,
    )
    return end.status


def needs_check(plan: LaunchPlan, request: LaunchRequest) -> bool:
    """Whether MPI is to be asked who the ranks are: for one rank there is nothing to ask."""
    return (
        request.has_check
        and request.is_about_mpi
        and plan.shape.size > 1
        and (plan.has_mpi or plan.launcher != "local")
    )


def _read_request(arguments: argparse.Namespace) -> LaunchRequest:
    from kedge.launch.request import LaunchRequest

    way, contract = arguments.parallel, arguments.contract
    if contract and way in ("ranks", "torchrun") and contract != way:
        raise UsageError(f"--{way} and --contract {contract} are two contracts", hint="give one of them")
    chosen = Contract(contract) if contract else _WAYS.get(way or "mpi", Contract.NONE)
    words = list(arguments.words)
    return LaunchRequest(
        image=arguments.image,
        command=tuple(words[1:] if words[:1] == ["--"] else words),
        options=tuple(read_container_options(arguments)),
        nodes=arguments.nodes,
        tasks=arguments.tasks,
        tasks_per_node=arguments.tasks_per_node,
        launcher=arguments.launcher,
        launcher_options=tuple(arguments.launcher_option),
        mpi_type=arguments.mpi_type,
        contract=chosen,
        uses_mpi={"mpi": True, "tasks": False}.get(way or ""),
        processes=arguments.processes,
        least_nodes=arguments.least_nodes,
        restarts=arguments.restarts,
        has_check=not arguments.no_check,
        check_seconds=arguments.check_timeout,
        is_labelled=arguments.label,
        is_runscript=arguments.runscript,
        mpi_mode=arguments.mpi_mode,
    )


def read_container_options(arguments: argparse.Namespace) -> list[str]:
    """The options of the container as `kedge exec` takes them."""
    words: list[str] = []
    for flag in _list_flags():
        value = getattr(arguments, _PREFIX + flag.names[0], None)
        if isinstance(value, list):
            words += [word for each in value for word in (f"--{flag.names[0]}", each)]
        elif value:
            words.append(f"--{flag.names[0]}")
    return words


def _show(plan: LaunchPlan, console: Console) -> None:
    """Words and variables of the launch and of every rank."""
    from kedge.launch.describe import describe_plan

    described = describe_plan(plan, console.environ)
    if console.json:
        console.print_json(described)
        return
    for reason in plan.reasons:
        console.print(f"# {reason}")
    for process in described["processes"]:
        console.print(shlex.join(process["argv"]))
    for rank in described["ranks"]:
        console.print(f"\n# rank {rank['rank']} of {rank['size']}, on {rank['host']}")
        for name, value in rank["environment"].items():
            console.print(f"unset {name}" if value is None else f"{name}={shlex.quote(value)}")
        console.print(shlex.join(rank["argv"]))


def _tell(failure: RankFailure, contract: Contract, console: Console) -> None:
    """Which rank failed and how, its last lines, and what they mean."""
    from kedge.cli.redaction import escape_controls, escape_line
    from kedge.cli.status import warn_of_site_failures
    from kedge.compat.failures.find_clues import remove_colours
    from kedge.launch.describe import find_rank_clue
    from kedge.system.process import describe_status

    how = failure.how or (describe_status(failure.status) if failure.status is not None else "failed")
    if failure.rank is None:
        console.progress.warn(f"the launch {how}")
    else:
        where = f" on {failure.host}" if failure.host else ""
        console.progress.warn(f"{name_task(contract, failure.rank)}{where} {how}; the other ranks were ended")
    if failure.lines and not failure.is_shown:
        console.write_note("Its last lines:" if failure.rank is not None else "Last lines:")
        for line in failure.lines:
            console.write_note(f"  {escape_controls(remove_colours(line))}")
    clue = find_rank_clue(failure)
    if clue is not None:
        console.note_hanging("Cause: ", escape_line(clue.cause))
        console.note_hanging("Remedy: ", escape_line(clue.remedy))
    warn_of_site_failures(console)


def _write(is_error: bool, text: str) -> None:
    """A line of a rank, as it is."""
    stream = sys.stderr.buffer if is_error else sys.stdout.buffer
    stream.write(text.encode(errors="surrogateescape"))
    stream.flush()


def read_count(text: str) -> int:
    """A number from 1 up."""
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 10_000_000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 up")
    return int(text)


def read_seconds(text: str) -> float:
    """A number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value
