# SPDX-License-Identifier: BSD-3-Clause
"""`kedge push SOURCE REFERENCE`: put an image of this host into a registry."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_dry_run, add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.push import Pushed


def configure(parser: argparse.ArgumentParser) -> None:
    """What, and where to."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a SIF or SquashFS file, a directory, oci:PATH, docker-archive:PATH, or docker://NAME of the cache",
    )
    parser.add_argument(
        "target",
        metavar="REFERENCE",
        help="docker://REGISTRY/NAME:TAG sends layers, oras://REGISTRY/NAME:TAG the SIF file",
    )
    parser.add_argument(
        "-U", "--allow-unsigned", "--allow-unauthenticated", action="store_true", help=argparse.SUPPRESS
    )
    add_login(parser)
    add_settings(
        parser, "architecture", "no_https", "ca_bundle", "temporary_directory", "cache_directory", "disable_cache"
    )
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Push, and report what was sent."""
    from kedge.base.reference import Reference
    from kedge.image.push import push
    from kedge.image.workplace import Workplace

    source, target = Reference.parse(arguments.source), Reference.parse(arguments.target)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, target))
    pushed = push(source, target, workplace, dry_run=console.dry_run)
    if console.json:
        console.print_json(pushed.as_dict())
    else:
        _say(pushed, console)
    return 0


def _say(pushed: Pushed, console: Console) -> None:
    from kedge.base.size import format_size

    if console.dry_run:
        console.print(f"target     {pushed.target}")
        console.print(f"digest     {pushed.digest}")
        for blob in pushed.blobs:
            console.print(f"blob       {str(blob.digest)[:19]}  {format_size(blob.size)}  {blob.state}")
        console.print(f"send       {format_size(pushed.sent)}; {format_size(pushed.reused)} already there")
        return
    console.print(str(pushed.digest))
    console.progress.note(f"sent {format_size(pushed.sent)}; {format_size(pushed.reused)} already there")
