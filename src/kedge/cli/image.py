# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image`: what holds the bytes of an image, and what changed between two."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console

_IMAGE = "reference, SIF file, directory or archive"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    diff = commands.add_parser("diff", help="Show what changed between two images: files, packages, config")
    diff.add_argument("base", metavar="BASE", help=_IMAGE)
    diff.add_argument("new", metavar="NEW", help=_IMAGE)
    diff.add_argument("--all", action="store_true", help="list all files that changed, not only the largest")
    for command in (diff,):
        add_login(command)
        add_settings(command, "architecture", "no_https", "ca_bundle", "cache_directory", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Do what the subcommand says."""
    return _run_diff(arguments, console)


def _run_diff(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.cli.image_text import show_diff
    from kedge.model.reference import Reference
    from kedge.ops.explain.image_diff import diff_images
    from kedge.ops.setup.workplace import Workplace

    base, new = Reference.parse(arguments.base), Reference.parse(arguments.new)
    remote = base if not base.is_local else new
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, remote))
    difference = diff_images(base, new, workplace)
    if console.json:
        console.print_json(difference.as_dict())
    else:
        show_diff(difference, console, everything=arguments.all)
    return 0
