# SPDX-License-Identifier: BSD-3-Clause
"""`kedge jobs`: lists all jobs of the user in one table; asks the scheduler once."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.base.duration import format_duration
from kedge.base.size import format_size
from kedge.cli.options import add_settings
from kedge.cli.redaction import escape_line
from kedge.cluster.job_state import JobStatus, State
from kedge.cluster.schedulers.choose import find_facts
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.efficiency import JobEfficiency
    from kedge.jobs.status import JobView

_STATES = list(dict.fromkeys(word for state in State for word in (state.word, state.value)))
_LONGEST_NAME = 40  # characters in a table
_SHORTEST_PAUSE = 2.0  # seconds between two questions of --watch: schedulers serve others too


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs to list, and how often."""
    parser.add_argument("--all", "-a", action="store_true", help="also list jobs that ended more than a day ago")
    parser.add_argument(
        "--state", action="append", choices=_STATES, metavar="STATE", help="list only jobs in this state; repeatable"
    )
    parser.add_argument("--name", metavar="NAME", help="list only jobs with this name")
    parser.add_argument("--mine", action="store_true", help="list only jobs submitted with kedge")
    parser.add_argument(
        "--watch", "-w", nargs="?", type=float, const=5.0, metavar="SECONDS", help="repeat (default: every 5 s)"
    )
    parser.add_argument(
        "--efficiency", action="store_true", help="show what ended jobs used, and the request that was enough"
    )
    parser.add_argument(
        "--forget", type=float, metavar="DAYS", help="remove records of jobs that ended more than DAYS ago"
    )
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the table, once or repeatedly."""
    from kedge.jobs.cluster import open_cluster
    from kedge.jobs.status import forget_old, survey

    cluster = open_cluster(console.settings, console.environ)
    if arguments.forget is not None:
        count = forget_old(cluster, arguments.forget)
        console.print(f"Removed {count} record{'' if count == 1 else 's'}")
        if console.json:
            console.print_json({"removed": count})
        return 0
    if arguments.watch is not None and arguments.watch < _SHORTEST_PAUSE:
        raise UsageError(
            f"--watch {arguments.watch:g} is too short: the minimum is {_SHORTEST_PAUSE:g} s",
            hint=f"every refresh asks the scheduler; use --watch {_SHORTEST_PAUSE:g} or more",
        )
    while True:
        views = [view for view in survey(cluster, everything=arguments.all) if _is_wanted(view, arguments)]
        if arguments.efficiency:
            from kedge.jobs.efficiency import measure_jobs

            show_efficiency(measure_jobs(cluster, views), console)
        else:
            _show(views, find_facts(cluster.site.scheduler).queue_word, console)
        if arguments.watch is None:
            return 0
        time.sleep(arguments.watch)
        console.clear()


def _is_wanted(view: JobView, arguments: argparse.Namespace) -> bool:
    if arguments.state and not {view.status.state.word, view.status.state.value} & {*arguments.state}:
        return False
    if arguments.name and view.status.name != arguments.name:
        return False
    return bool(view.key) or not arguments.mine


def _show(views: Sequence[JobView], queue_word: str, console: Console) -> None:
    if console.json:
        console.print_json([{**view.status.as_dict(), "key": view.key or None} for view in views])
        return
    rows = [
        (
            view.status.shown_id,
            _shorten(view.status.name),
            _paint_state(view.status, console),
            view.status.queue,
            _format_span(view.status.started, view.status.ended),
            view.status.nodes or view.status.reason,
        )
        for view in views
    ]
    if rows:
        console.print_table(("job", "name", "state", queue_word, "time", "nodes, or reason"), rows)
    console.print(f"{len(rows)} job{'' if len(rows) == 1 else 's'}")


def _paint_state(status: JobStatus, console: Console) -> str:
    raw = f" ({status.raw})" if status.state is State.UNKNOWN else ""
    return console.paint(status.state.word, status.state.word) + raw


def _shorten(name: str) -> str:
    """Shorten a job's name for the table; --json prints all of it."""
    from kedge.cli.redaction import escape_line

    name = escape_line(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _format_span(started: float | None, ended: float | None) -> str:
    if not started:
        return ""
    from kedge.base.duration import format_duration

    return format_duration(max(round((ended or time.time()) - started), 0))


# `kedge jobs --efficiency`: what jobs requested, what they used, and what would have been enough.

_HEADINGS = ("job", "name", "state", "time", "CPU", "memory", "GPU", "enough")
_LONGEST_JOB_NAME = 20


def show_efficiency(found: Sequence[JobEfficiency], console: Console) -> None:
    """A table, or JSON."""
    if console.json:
        console.print_json([{**each.as_dict(), "cpu_load": _round(each.cpu_load)} for each in found])
        return
    if found:
        console.print_table(_HEADINGS, [_make_row(each, console) for each in found])
    if any(not each.sources for each in found):
        console.print("Empty cells: the job left no record, and the scheduler keeps no accounts of it")
    console.print(f"{len(found)} job{'' if len(found) == 1 else 's'} that ended")


def _make_row(found: JobEfficiency, console: Console) -> tuple[str, ...]:
    name = escape_line(found.name)
    return (
        found.id,
        name if len(name) <= _LONGEST_JOB_NAME else f"{name[: _LONGEST_JOB_NAME - 1]}…",
        console.paint(found.state, found.state),
        _compare(_show_time(found.seconds), _show_time(found.time_limit)),
        _show_cpus(found),
        _compare(_show_size(found.memory), _show_size(found.memory_asked)),
        _show_gpus(found),
        " ".join(found.enough),
    )


def _compare(used: str, asked: str) -> str:
    return f"{used} of {asked}" if used and asked else used


def _show_time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(round(seconds))


def _show_size(size: int | None) -> str:
    return "" if size is None else format_size(size)


def _show_cpus(found: JobEfficiency) -> str:
    load = found.cpu_load
    return "" if load is None else f"{load:.0f} % of {found.cpus}"


def _show_gpus(found: JobEfficiency) -> str:
    if found.gpu_load is None:
        return f"of {found.gpus}" if found.gpus else ""
    memory = "" if found.gpu_memory is None else f", memory {found.gpu_memory:.0f} %"
    return f"{found.gpu_load:.0f} %" + (f" of {found.gpus}" if found.gpus else "") + memory


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
