# SPDX-License-Identifier: BSD-3-Clause
"""`kedge overlay create`: a writable layer in a file, for `kedge exec --overlay`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.options import read_image_path
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The one subcommand and its flags, which are Apptainer's."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    create = commands.add_parser("create", help="Create an ext3 image, or add an overlay partition to a SIF")
    create.add_argument("image", metavar="IMAGE", type=read_image_path, help="new file, or existing SIF")
    create.add_argument(
        "-s", "--size", metavar="MIB", default="64", help="size in MiB, or with a unit such as 10G (default: 64)"
    )
    create.add_argument("-S", "--sparse", action="store_true", help="use disk space only as the overlay fills")
    create.add_argument(
        "-f", "--fakeroot", action="store_true", help="make root the owner of the layer, for use with --fakeroot"
    )
    create.add_argument(
        "--create-dir",
        metavar="DIR",
        action="append",
        default=[],
        help="directory to create in the overlay; repeatable",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Make it and say where it is."""
    from kedge.base.size import format_size
    from kedge.image.overlay import OverlayOptions, create_overlay

    folders = tuple(folder for text in arguments.create_dir for folder in text.split(",") if folder)
    options = OverlayOptions(read_size(arguments.size), arguments.sparse, arguments.fakeroot, folders)
    made = create_overlay(arguments.image, options)
    if console.json:
        console.print_json(made.as_dict())
    what = "an overlay" if made.identifier is None else f"an overlay partition, object {made.identifier},"
    console.progress.note(f"{made.path}: {what} of {format_size(made.size)}")
    return 0


def read_size(text: str) -> int:
    """MiB from a number, or a number with M, G or T behind it."""
    number, unit = text.strip(), "M"
    if number and number[-1].upper() in "MGT":
        number, unit = number[:-1], number[-1].upper()
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        raise UsageError(f"--size {text}: not a valid size", hint="use a number of MiB, or 500M, 10G, 1T")
    return int(number) << 10 * "MGT".index(unit)
