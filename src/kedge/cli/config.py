# SPDX-License-Identifier: BSD-3-Clause
"""`kedge config`: show settings and where each comes from; change the user's file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run
from kedge.system import config
from kedge.system.settings import SETTINGS, site_file, user_file

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("show", help="Show all settings, their values and sources")
    commands.add_parser("path", help="Show the paths of the configuration files")
    get = commands.add_parser("get", help="Show the value of a setting")
    get.add_argument("key", metavar="KEY", help=_list_keys())
    change = commands.add_parser("set", help="Change a setting in your configuration file")
    change.add_argument("key", metavar="KEY", help=_list_keys(in_files=True))
    change.add_argument("value", metavar="VALUE")
    add_dry_run(change)
    fakeroot = commands.add_parser(
        "fakeroot", help="Show what --fakeroot can do for a user and what administrators can add"
    )
    fakeroot.add_argument("user", metavar="USER", nargs="?", default="", help="default: you")
    remove = commands.add_parser("unset", help="Remove a setting from your configuration file")
    remove.add_argument("key", metavar="KEY", help=_list_keys(in_files=True))
    add_dry_run(remove)


def _list_keys(*, in_files: bool = False) -> str:
    names = [setting.name for setting in SETTINGS.values() if setting.in_files or not in_files]
    return "one of: " + ", ".join(names)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"show": _show, "path": _path, "get": _get, "set": _set, "unset": _unset, "fakeroot": _fakeroot}
    commands[arguments.command](arguments, console)
    return 0


def _show(arguments: argparse.Namespace, console: Console) -> None:
    del arguments
    shown = config.list_settings(console.settings)
    if console.json:
        console.print_json([setting.as_dict() for setting in shown])
    console.print_table(("key", "value", "source"), [(setting.key, setting.text, setting.source) for setting in shown])


def _path(arguments: argparse.Namespace, console: Console) -> None:
    del arguments
    files = {"site": site_file(console.environ), "user": user_file(console.environ)}
    if console.json:
        console.print_json({name: {"path": str(path), "exists": path.exists()} for name, path in files.items()})
    rows = [(name, path, "exists" if path.exists() else "absent") for name, path in files.items()]
    console.print_table(("file", "path", "state"), rows)


def _get(arguments: argparse.Namespace, console: Console) -> None:
    shown = config.get_setting(console.settings, arguments.key)
    if console.json:
        console.print_json(shown.as_dict())
    console.print(shown.text)


def _set(arguments: argparse.Namespace, console: Console) -> None:
    path = config.set_setting(arguments.key, arguments.value, console.environ, dry_run=console.dry_run)
    if console.dry_run:
        console.print(f"would set {arguments.key} = {arguments.value} in {path}")
    else:
        console.progress.note(f"set {arguments.key} in {path}")
    if console.json:
        console.print_json({"key": arguments.key, "value": arguments.value, "file": str(path)})


def _unset(arguments: argparse.Namespace, console: Console) -> None:
    path = config.unset_setting(arguments.key, console.environ, dry_run=console.dry_run)
    if console.dry_run:
        console.print(f"would remove {arguments.key} from {path}")
    else:
        console.progress.note(f"removed {arguments.key} from {path}")
    if console.json:
        console.print_json({"key": arguments.key, "value": None, "file": str(path)})


def _fakeroot(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.answers.doctor.containers import advise  # late: one subcommand

    finding = advise(arguments.user, console.environ)
    if console.json:
        console.print_json({"user": arguments.user or None, "found": finding.what, "fix": finding.fix or None})
    for text in (finding.what, finding.why, finding.fix):
        if text:
            console.print(text)
