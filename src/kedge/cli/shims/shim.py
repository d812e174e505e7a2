# SPDX-License-Identifier: BSD-3-Clause
"""`kedge shim`: gives kedge names such as `apptainer`, `docker` and `enroot`, so that scripts run unchanged."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run
from kedge.container.shim_file import ALL_PROGRAMS, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.cli.console import Console
    from kedge.container.shim import Shim


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    install = commands.add_parser(
        "install", help="Install the commands apptainer and singularity, or docker, enroot, srun"
    )
    install.add_argument("--force", action="store_true", help="replace other programs of these names")
    remove = commands.add_parser("remove", help="Remove these commands; other programs of these names stay")
    listing = commands.add_parser("list", help="List the installed commands and whether your shell finds them")
    for command in (install, remove):
        command.add_argument(
            "program",
            metavar="NAME",
            nargs="*",
            help="apptainer (with singularity and run-singularity), docker, enroot, srun"
            f" (default: {'apptainer' if command is install else 'all'})",
        )
        command.add_argument("--dir", type=Path, metavar="DIR", help="directory (default: ~/.local/bin)")
        add_dry_run(command)
    listing.add_argument("--dir", type=Path, metavar="DIR", help="directory (default: ~/.local/bin and all of PATH)")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Run one subcommand."""
    commands = {"install": _install, "remove": _remove, "list": _list}
    commands[arguments.command](arguments, console)
    return 0


def _choose_programs(names: Sequence[str]) -> list[str]:
    """The files behind the names, each once."""
    from kedge.base.nearest import propose
    from kedge.errors import UsageError

    for name in names:
        if name not in ALL_PROGRAMS:
            known = ", ".join(ALL_PROGRAMS)
            raise UsageError(f"kedge has no shim '{name}'", hint=propose(name, ALL_PROGRAMS) or f"use one of: {known}")
    groups = [PROGRAMS if name in PROGRAMS else (name,) for name in names]
    return list(dict.fromkeys(program for group in groups for program in group))


def _install(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.container.shim import default_folder, install_shims

    folder = arguments.dir or default_folder(console.environ)
    programs = _choose_programs(arguments.program or ["apptainer"])
    shims = install_shims(folder, console.environ, programs, force=arguments.force, dry_run=console.dry_run)
    if console.json:
        console.print_json([shim.as_dict() for shim in shims])
    for shim in shims:
        console.print(f"{'would write' if console.dry_run else 'wrote'} {shim.path}")
    for text in explain(shims):
        console.progress.warn(text)


def _remove(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.container.shim import default_folder, remove_shims

    folder = arguments.dir or default_folder(console.environ)
    paths = remove_shims(folder, _choose_programs(arguments.program or list(ALL_PROGRAMS)), dry_run=console.dry_run)
    if console.json:
        console.print_json([str(path) for path in paths])
    for path in paths:
        console.print(f"{'would remove' if console.dry_run else 'removed'} {path}")
    if not paths:
        console.progress.note(f"no shims in {folder}")


def _list(arguments: argparse.Namespace, console: Console) -> None:
    from kedge.container.shim import list_shims

    shims = list_shims(console.environ, arguments.dir)
    if console.json:
        console.print_json([shim.as_dict() for shim in shims])
    console.print_table(("path", "state", "other"), [(shim.path, shim.state, shim.other) for shim in shims])
    if not shims:
        place = f" in {arguments.dir}" if arguments.dir else ""
        words = f" --dir {shlex.quote(str(arguments.dir))}" if arguments.dir else ""
        console.progress.note(f"no shims{place}; to install them: kedge shim install{words}")


def explain(shims: list[Shim]) -> list[str]:
    """What a user should do so that the names mean kedge."""
    texts = []
    folder = shims[0].path.parent
    if any(shim.state == "off-path" for shim in shims):
        texts.append(f'{folder} is not in PATH: export PATH="{folder}:$PATH"')
    for shim in shims:
        if shim.state == "hidden":
            texts.append(
                f"your shell finds another {shim.program} first{f', {shim.other}' if shim.other else ''}: "
                f'export PATH="{folder}:$PATH"'
            )
        elif shim.other and shim.state == "used":
            texts.append(f"{shim.program} now starts kedge; the other one is still {shim.other}")
    return texts
