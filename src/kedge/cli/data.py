# SPDX-License-Identifier: BSD-3-Clause
"""`kedge data`: the tables behind verdicts, where each figure is from, and what the registry can teach."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.base.counting import count_things
from kedge.base.frozen import as_dict, list_names
from kedge.cli.options import add_dry_run, add_settings
from kedge.errors import TableProblem

if TYPE_CHECKING:
    from kedge.answers.data_update import ImageUpdate
    from kedge.cli.console import Console
    from kedge.compat.data import Section

_FEW = 3  # rows that are shown whole; more make a table
_SHORT = {
    "cuda": ("version", "min_driver", "minor_floor", "compat_branches"),
    "gpus": ("name", "capability", "architecture", "kind", "memory", "first_cuda", "last_cuda", "last_driver_branch"),
    "releases": ("image", "tag", "framework_version", "cuda", "python", "ubuntu", "bundled_driver", "capabilities"),
}
_HEADINGS = {
    "min_driver": "driver",
    "minor_floor": "minor compat. from",
    "compat_branches": "forward compat. on",
    "framework_version": "framework",
    "bundled_driver": "driver",
    "capabilities": "gpus",
    "memory": "GB",
    "last_driver_branch": "last driver",
    "first_cuda": "first CUDA",
    "last_cuda": "last CUDA",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="List the tables, their size and age (default)")
    show = commands.add_parser("show", help="Show rows and the source of each value")
    show.add_argument(
        "what", metavar="WHAT", nargs="+", help="cuda, gpus or releases; an image, with or without a tag; a GPU; 12.4"
    )
    check = commands.add_parser("check", help="Check rows that you want to contribute")
    check.add_argument("file", metavar="FILE", type=Path, help="CSV with the columns of one of the tables")
    update = commands.add_parser("update", help="Read new tags' metadata from the registry, without pulling images")
    update.add_argument("images", metavar="IMAGE", nargs="*", help="such as pytorch (default: NVIDIA's frameworks)")
    update.add_argument("--since", metavar="YY.MM", default="", help="skip older releases")
    update.add_argument(
        "--limit", metavar="N", type=int, help="read at most N tags per image, newest first (default: 24)"
    )
    add_settings(update, "architecture", "no_https", "ca_bundle", "retries", "cache_directory")
    add_dry_run(update)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"list": _list, "show": _show, "check": _check, "update": _update}
    return commands[arguments.command or "list"](arguments, console)


def _list(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.compat.data import summarize_tables

    del arguments
    found = summarize_tables(console.environ)
    if console.json:
        console.print_json(as_dict(found))
        return 0
    for problem in found.problems[:_FEW]:
        console.progress.warn(f"learned rows: {problem}")
    rows = [(each.name, each.rows, each.newest or "-", each.path) for each in found.tables]
    console.print_table(("table", "rows", "newest", "file"), rows)
    images = [(each.name, each.rows, each.newest, each.learned or "-") for each in found.images]
    console.print_table(("image", "rows", "newest", "learned"), images)
    when = f"{found.learned_rows} rows, last {found.learned_when}" if found.learned_when else "nothing yet"
    console.print(f"learned: {when} ({found.learned})")
    if not found.learned_when:
        console.print("'kedge data update' learns from the registry what newer tags hold")
    return 0


def _show(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.compat.data import learned_path, show_rows
    from kedge.compat.tables.load import load_tables

    tables = load_tables(learned_path(console.environ))
    for problem in tables.problems[:_FEW]:
        console.progress.warn(f"learned rows: {problem.message}")
    sections = show_rows(" ".join(arguments.what), tables)
    if console.json:
        console.print_json([section.as_dict() for section in sections])
        return 0
    for number, section in enumerate(sections):
        if number:
            console.print()
        _print_section(section, console)
    return 0


def _print_section(section: Section, console: Console) -> None:
    if len(section.rows) <= _FEW:
        for row in section.rows:
            fields = [(name, _tell(getattr(row, name))) for name in list_names(type(row))]
            console.print_table((section.table, ""), [(name.replace("_", " "), text) for name, text in fields if text])
        return
    sources = list(dict.fromkeys(row.source for row in section.rows))
    names = [name for name in _SHORT[section.table] if any(getattr(row, name) for row in section.rows)]
    headings = [_HEADINGS.get(name, name) for name in names]
    rows = [
        [*(_tell(getattr(row, name)) or "-" for name in names), f"[{sources.index(row.source) + 1}]"]
        for row in section.rows
    ]
    console.print_table((*headings, "from"), rows)
    for number, source in enumerate(sources, 1):
        console.print(f"[{number}] {source}")


def _tell(value: Any) -> str:
    if isinstance(value, tuple):
        return (
            " ".join(str(each) for each in value) if all(isinstance(each, int) for each in value) else "; ".join(value)
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.compat.data import check_rows

    found = check_rows(arguments.file)
    if console.json:
        told = [problem.as_dict() for problem in found.problems]
        console.print_json({**as_dict(found), "problems": told, "good": not found.problems})
        return TableProblem.exit_code if found.problems else 0
    for problem in found.problems:
        console.print(f"{problem.message}\n  {problem.hint}")
    for note in found.notes:
        console.print(f"{found.path} {note}")
    new = f"{found.new} {'is' if found.new == 1 else 'are'} new to it"
    console.print(f"{count_things(found.rows, 'good row')} for the table '{found.table}'; {new}")
    if found.problems:
        message = f"{found.path}: {count_things(len(found.problems), 'row')} cannot be taken as written"
        raise TableProblem(message, context={"file": found.path}, hint="the lines above say where, and what is wanted")
    return 0


def _update(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.answers.data_update import DEFAULT_IMAGES, DEFAULT_LIMIT, UpdateRequest, update_tables
    from kedge.image.workplace import Workplace

    request = UpdateRequest(
        images=tuple(dict.fromkeys(arguments.images)) or DEFAULT_IMAGES,
        since=arguments.since,
        limit=DEFAULT_LIMIT if arguments.limit is None else arguments.limit,
        dry_run=console.dry_run,
    )
    result = update_tables(Workplace(console.settings, console.progress), console.environ, request)
    if console.json:
        stopped = result.stopped.as_dict() if result.stopped else None
        told = [as_dict(each) for each in result.images]
        console.print_json({"path": result.path, "learned": result.learned, "images": told, "stopped": stopped})
    for each in result.images:
        _print_image(each, console)
    if result.stopped is not None:
        kept = f"; {count_things(result.learned, 'tag')} learned before are kept" if result.learned else ""
        console.progress.warn(f"stopped: {result.stopped.message}{kept}")
        if result.stopped.hint:
            console.progress.warn(result.stopped.hint)
        return result.stopped.exit_code
    if not console.dry_run:
        console.print(
            f"learned {count_things(result.learned, 'tag')}" + (f" ({result.path})" if result.learned else "")
        )
    return 1 if all(each.problem for each in result.images) else 0


def _print_image(each: ImageUpdate, console: Console) -> None:
    if each.problem:
        console.progress.warn(f"{each.image}: {each.problem}")
        return
    older = "older one is" if each.left == 1 else "older ones are"
    left = f"; {each.left} {older} left for another time (--limit)" if each.left else ""
    if console.dry_run:
        console.print(f"{each.image}: {len(each.wanted)} of {count_things(each.tags, 'tag')} would be read{left}")
        _print_tags(each.wanted, console)
        return
    console.print(f"{each.image}: {len(each.learned)} of {count_things(each.tags, 'tag')} learned{left}")
    _print_tags(each.learned if console.verbosity else (), console)
    for tag, reason in each.skipped:
        console.progress.warn(f"{each.image}:{tag} is left out: {reason}")


def _print_tags(tags: Sequence[str], console: Console) -> None:
    for tag in tags:
        console.print(f"  {tag}")
