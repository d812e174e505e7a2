# SPDX-License-Identifier: BSD-3-Clause
"""`kedge pyxis get URI` and `kedge pyxis release`: what Pyxis asks of its importer.

Pyxis can give its importer no word of its own before `get`, so `kedge-pyxis` is `kedge pyxis` under one name.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The two commands, with what a site may want to set in a script of its own."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    get = commands.add_parser("get", help="Pull an image and print the path of its SquashFS file, for Enroot")
    get.add_argument("uri", metavar="URI", help="image as Enroot names it: docker://[USER@][REGISTRY#]IMAGE[:TAG]")
    add_settings(
        get, "architecture", "compression", "threads", "disable_cache", "cache_directory", "temporary_directory",
        "no_https", "ca_bundle", "download_connections", "retries",
        "stall_timeout", "minimum_speed", "cache_limit",
    )  # fmt: skip
    release = commands.add_parser("release", help="Release the image of this job step")
    add_settings(release, "cache_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """The path goes to standard output, alone; all else to standard error, which Pyxis shows when this fails."""
    from kedge.container.pyxis import get_image, release_images
    from kedge.image.workplace import Workplace

    workplace = Workplace(console.settings, console.progress)
    if arguments.command == "release":
        was_held = release_images(workplace, os.environ)
        if console.json:
            console.print_json({"released": was_held})
        return 0
    got = get_image(arguments.uri, workplace, os.environ)
    if console.json:
        console.print_json(got.as_dict())
    else:
        console.print(str(got.path))
    return 0
