# SPDX-License-Identifier: BSD-3-Clause
"""`kedge push SOURCE REFERENCE`: an image of this machine into a registry."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_dry_run, add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """What, and where to."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a SIF or SquashFS file, a folder, oci:PATH, docker-archive:PATH"
    )
    parser.add_argument("target", metavar="REFERENCE", help="docker://… for layers, oras://… for the SIF file")
    parser.add_argument("-U", "--allow-unsigned", action="store_true", help=argparse.SUPPRESS)
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "temporary_directory")
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Push, and say what was sent."""
    from kedge.model.reference import Reference
    from kedge.model.size import format_size
    from kedge.ops.push import push
    from kedge.ops.workplace import Workplace

    source, target = Reference.parse(arguments.source), Reference.parse(arguments.target)
    if console.dry_run:
        console.print(f"would push {source} to {target}")
        return 0
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, target))
    pushed = push(source, target, workplace)
    if console.json:
        console.print_json(pushed.as_dict())
    else:
        console.print(str(pushed.digest))
        console.progress.note(f"sent {format_size(pushed.sent)}; {format_size(pushed.reused)} were there already")
    return 0
