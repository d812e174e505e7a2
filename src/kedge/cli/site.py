# SPDX-License-Identifier: BSD-3-Clause
"""`kedge site`: which cluster this is, what is known about it, whether a job fits, and a profile for a new one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_dry_run
from kedge.errors import NoScheduler
from kedge.frozen import as_dict
from kedge.model.duration import shorten_duration
from kedge.model.job import Job
from kedge.model.memory import shorten_memory

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.model.site import Queue, Site

_NAME = "a site of 'kedge site list', or a profile's file (the site this is)"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("detect", help="Show which cluster this is, and why")
    commands.add_parser("list", help="List the cluster profiles")
    show = commands.add_parser("show", help="Show a cluster's profile")
    show.add_argument("name", metavar="NAME", nargs="?", help=_NAME)
    show.add_argument("--queues", action="store_true", help="its queues, as a table")
    check = commands.add_parser(
        "check", help="Check whether a job fits; without a job, compare the profile with the scheduler"
    )
    check.add_argument("name", metavar="NAME", nargs="?", help=_NAME)
    check.add_argument("--interactive", action="store_true", help="as an interactive job")
    add_job_options(check, without=("image",))
    init = commands.add_parser("init", help="Write a profile of this cluster from its scheduler's answers")
    init.add_argument("name", metavar="NAME", nargs="?", help="what to call it (found out)")
    init.add_argument("--output", metavar="FILE", help="where to, '-' for standard output (your directory of profiles)")
    init.add_argument("--force", action="store_true", help="replace a profile that is there")
    add_dry_run(init)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"detect": _detect, "list": _list, "show": _show, "check": _check, "init": _init}
    return commands[arguments.command](arguments, console)


def _detect(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.ops.setup.site import detect_here

    del arguments
    found = detect_here(console.settings, console.environ)
    others = [(each.site, each.reason) for each in found.others]
    if console.json:
        told = [{"site": name, "reason": reason} for name, reason in others]
        names = list(found.hostnames)
        console.print_json({"site": found.site.name, "reason": found.reason, "others": told, "hostnames": names})
    console.print_table(("site", "because"), [(found.site.name, found.reason), *others])
    return 0


def _list(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.ops.setup.site import list_known

    del arguments
    known = list_known(console.environ)
    if console.json:
        console.print_json([as_dict(each) for each in known])
    for each in known:
        if each.problem:
            console.progress.warn(f"{each.name}: {each.problem}")
    rows = [
        (each.name, each.scheduler, each.origin, "(gone) " * each.is_retired + (each.title or "(cannot be read)"))
        for each in known
    ]
    console.print_table(("site", "scheduler", "from", "title"), rows)
    return 0


def _find(arguments: argparse.Namespace, console: Console) -> Site:
    from kedge.ops.setup.site import choose_site

    return choose_site(console.settings, console.environ, name=arguments.name or "")


def _show(arguments: argparse.Namespace, console: Console) -> int:
    site = _find(arguments, console)
    if console.json:
        console.print_json(as_dict(site))
    elif arguments.queues:
        headings = ("queue", "nodes", "cpus", "memory", "gpus", "gpu", "driver", "longest", "most nodes", "note")
        console.print_table(headings, [_row(each) for each in site.queues])
    else:
        from kedge.sites.writer import write_profile

        console.print(write_profile(site, opening=(f"{site.name}: {site.origin}",)).rstrip("\n"))
    return 0


def _row(queue: Queue) -> tuple[object, ...]:
    note = "; ".join(
        word for word in ("gone" if queue.is_retired else "", "default" if queue.is_default else "", queue.note) if word
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
    from kedge.sites.checks import check_request, describe_changes

    checked = check_request(job, site, interactive=arguments.interactive, environ=console.environ)
    for text in checked.warnings:
        console.progress.warn(text)
    for text in checked.notes:
        console.progress.note(text)
    filled = describe_changes(job, checked.job)
    if console.json:
        told = {"site": site.name, "queue": checked.job.queue, "adds": filled}
        console.print_json({**told, "warnings": list(checked.warnings), "notes": list(checked.notes)})
    console.print(f"{site.name} serves this" + (f", with {filled}" if filled else ""))
    return 0


def _compare(site: Site, console: Console) -> int:
    """The status is 1 where the profile is out of date."""
    from kedge.ops.setup.site_discovery import compare_with_live

    try:
        found = compare_with_live(site, console.environ)
    except NoScheduler as problem:
        problem.hint = "give a job, such as --gpus 4 --time 2h, to see whether it fits; or run it on a login node"
        raise
    if console.json:
        console.print_json({"site": site.name, "differences": [as_dict(each) for each in found]})
    for each in found:
        console.print(str(each))
    if not site.queues:
        console.print(f"the profile of {site.name} names no queue; 'kedge site init' writes one that does")
    elif not found:
        console.print(f"the profile of {site.name} says what the scheduler says")
    return 1 if found else 0


def _init(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.ops.setup.site_discovery import discover_site, save_profile, show_profile

    site = discover_site(console.environ, arguments.name or "")
    if console.dry_run or arguments.output == "-":
        console.print(show_profile(site).rstrip("\n"))
        where = ""
    else:
        path = save_profile(site, console.environ, output=arguments.output or "", force=arguments.force)
        where = str(path)
        console.progress.note(f"{path} describes {site.title}: {len(site.queues)} queues")
    if console.json:
        console.print_json({"site": as_dict(site), "file": where or None})
    return 0
