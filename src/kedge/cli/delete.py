# SPDX-License-Identifier: BSD-3-Clause
"""`kedge delete`: delete an image from a library server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run, add_settings
from kedge.cli.sign import read_piped_line

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The options, as Apptainer's."""
    parser.add_argument("image", metavar="REF", help="library://ENTITY/COLLECTION/NAME:TAG")
    parser.add_argument("-A", dest="architecture", metavar="ARCH", help="the same as --arch")
    parser.add_argument("-F", "--force", action="store_true", help="do not ask for confirmation")
    add_dry_run(parser)
    add_settings(parser, "architecture", "library_url", "no_https", "ca_bundle", "retries")


def _is_sure(question: str, console: Console) -> bool:
    """Whether the user confirms, on the terminal or by a piped line."""
    piped = read_piped_line()
    return piped.strip().lower() in ("y", "yes") if piped else console.confirm(question)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Delete the image after a confirmation."""
    from kedge.image.library_images import delete_image, name_image, parse_library
    from kedge.image.workplace import Workplace

    reference = parse_library(arguments.image)
    workplace = Workplace(console.settings, console.progress)
    shown = f"{name_image(reference)} ({workplace.platform.architecture})"
    if console.dry_run:
        console.print(f"would delete {shown}")
        return 0
    if not arguments.force and not _is_sure(f"Are you sure you want to delete {shown}", console):
        return 0
    delete_image(reference, workplace)
    if console.json:
        console.print_json({"deleted": name_image(reference), "architecture": workplace.platform.architecture})
    console.progress.note(f"Image {shown} deleted.")
    return 0
