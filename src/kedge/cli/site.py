# SPDX-License-Identifier: BSD-3-Clause
"""`kedge site`: detects the cluster, shows its profile, checks jobs against it, writes a profile of a new one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.duration import shorten_duration
from kedge.base.frozen import as_dict
from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_dry_run
from kedge.cluster.job import Job
from kedge.cluster.memory import shorten_memory
from kedge.cluster.schedulers.choose import find_facts
from kedge.errors import NoScheduler

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.cluster.site import Queue, Site

_NAME = "site of 'kedge site list', or path of a profile (default: detected)"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("detect", help="Show which cluster this is, and why")
    commands.add_parser("list", help="List the cluster profiles")
    show = commands.add_parser("show", help="Show a cluster's profile")
    show.add_argument("name", metavar="NAME", nargs="?", help=_NAME)
    show.add_argument("--queues", "--partitions", action="store_true", help="show its partitions or queues as a table")
    check = commands.add_parser(
        "check", help="Check whether a job fits; without a job, compare the profile with the scheduler"
    )
    check.add_argument("name", metavar="NAME", nargs="?", help=_NAME)
    check.add_argument("--interactive", action="store_true", help="check an interactive job")
    add_job_options(check, without=("image",))
    init = commands.add_parser("init", help="Write a profile of this cluster from its scheduler's answers")
    init.add_argument("name", metavar="NAME", nargs="?", help="name of the profile (default: from the host name)")
    init.add_argument(
        "--output", metavar="FILE", help="write to FILE, '-' for standard output (default: your profile directory)"
    )
    init.add_argument("--force", action="store_true", help="overwrite an existing profile")
    add_dry_run(init)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"detect": _detect, "list": _list, "show": _show, "check": _check, "init": _init}
    return commands[arguments.command](arguments, console)


def _detect(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.cluster.sites.find_site import detect_here

    del arguments
    detected = detect_here(console.settings, console.environ)
    others = [(other.site, other.reason) for other in detected.others]
    if console.json:
        console.print_json(
            {
                "site": detected.site.name,
                "reason": detected.reason,
                "others": [{"site": name, "reason": reason} for name, reason in others],
                "hostnames": list(detected.hostnames),
            }
        )
    console.print_table(("site", "reason"), [(detected.site.name, detected.reason), *others])
    return 0


def _list(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.cluster.sites.find_site import list_known

    del arguments
    known = list_known(console.environ)
    if console.json:
        console.print_json([as_dict(site) for site in known])
    for site in known:
        if site.problem:
            console.progress.warn(f"{site.name}: {site.problem}")
    rows = [
        (site.name, site.scheduler, site.origin, "(retired) " * site.is_retired + (site.title or "(unreadable)"))
        for site in known
    ]
    console.print_table(("site", "scheduler", "from", "title"), rows)
    return 0


def _find(arguments: argparse.Namespace, console: Console) -> Site:
    from kedge.cluster.sites.find_site import choose_site

    return choose_site(console.settings, console.environ, name=arguments.name or "")


def _show(arguments: argparse.Namespace, console: Console) -> int:
    site = _find(arguments, console)
    if console.json:
        console.print_json(as_dict(site))
    elif arguments.queues:
        headings = (
            find_facts(site.scheduler).queue_word,
            "nodes",
            "cpus",
            "memory",
            "gpus",
            "gpu",
            "driver",
            "max time",
            "max nodes",
            "note",
        )
        console.print_table(headings, [_make_row(queue) for queue in site.queues])
    else:
        from kedge.cluster.sites.schema import write_profile

        console.print(write_profile(site, opening=(f"{site.name}: {site.origin}",)).rstrip("\n"))
    return 0


def _make_row(queue: Queue) -> tuple[object, ...]:
    note = "; ".join(
        word
        for word in ("retired" if queue.is_retired else "", "default" if queue.is_default else "", queue.note)
        if word
    )
    return (
        queue.name,
        _or_dash(queue.nodes),
        _or_dash(queue.cpus_per_node),
        shorten_memory(queue.memory_per_node) if queue.memory_per_node else "-",
        _or_dash(queue.gpus_per_node),
        queue.gpu or queue.gpu_type or "-",
        queue.driver or "-",
        shorten_duration(queue.max_time) if queue.max_time else "-",
        _or_dash(queue.max_nodes),
        note,
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    site = _find(arguments, console)
    job = read_job_options(arguments, Job(), needs_command=False)
    if job == Job() and not arguments.interactive:
        return _compare(site, console)
    from kedge.cluster.sites.check_request import check_request, describe_changes

    checked = check_request(job, site, interactive=arguments.interactive, environ=console.environ)
    for text in checked.warnings:
        console.progress.warn(text)
    for text in checked.notes:
        console.progress.note(text)
    filled = describe_changes(job, checked.job)
    if console.json:
        told = {"site": site.name, "queue": checked.job.queue, "adds": filled}
        console.print_json({**told, "warnings": list(checked.warnings), "notes": list(checked.notes)})
    console.print(f"{site.name} accepts this job" + (f"; kedge adds {filled}" if filled else ""))
    return 0


def _compare(site: Site, console: Console) -> int:
    """Compare the profile with the scheduler; the exit code is 1 if they differ."""
    from kedge.cluster.sites.discover import compare_with_live

    try:
        differences = compare_with_live(site, console.environ)
    except NoScheduler as problem:
        problem.hint = "run this on a login node; or give a job to check, such as --gpus 4 --time 2h"
        raise
    if console.json:
        console.print_json({"site": site.name, "differences": [as_dict(difference) for difference in differences]})
    for difference in differences:
        console.print(str(difference))
    if not site.queues:
        word = find_facts(site.scheduler).queue_word
        console.print(f"The profile of {site.name} lists no {word}s. Write one that does: kedge site init")
    elif not differences:
        console.print(f"The profile of {site.name} matches the scheduler")
    return 1 if differences else 0


def _init(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.cluster.sites.discover import discover_site, save_profile, show_profile

    site = discover_site(console.environ, arguments.name or "")
    if console.dry_run or arguments.output == "-":
        console.print(show_profile(site).rstrip("\n"))
        where = ""
    else:
        path = save_profile(site, console.environ, output=arguments.output or "", force=arguments.force)
        where = str(path)
        console.progress.note(
            f"Wrote {path}: {site.title}, {count_things(len(site.queues), find_facts(site.scheduler).queue_word)}"
        )
    if console.json:
        console.print_json({"site": as_dict(site), "file": where or None})
    return 0
