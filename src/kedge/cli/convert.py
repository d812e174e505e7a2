# SPDX-License-Identifier: BSD-3-Clause
"""`kedge convert SOURCE TARGET`: between SIF, SquashFS, sandbox directory, OCI layout and archives."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run, add_settings, add_verify
from kedge.cli.pull import FORMS

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """What, into what, and how."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a file, a directory, oci:PATH, docker-archive:PATH, host:PROGRAM …"
    )
    parser.add_argument("target", metavar="TARGET", help="a name whose ending says the format, or FORMAT:PATH[:TAG]")
    parser.add_argument("--format", choices=FORMS, help="target format, if the name does not say it")
    parser.add_argument("--tag", help="name of the image inside OCI layouts and archives (default: latest)")
    parser.add_argument("-F", "--force", action="store_true", help="replace an existing target")
    parser.add_argument(
        "--data",
        action="store_true",
        help="the files are data, not an image: write them unchanged and add nothing, to mount with "
        "-B data.sqsh:/data:image-src=/",
    )
    parser.add_argument("--fix-perms", action="store_true", help="give the owner rwX on everything in the image")
    add_verify(parser)
    add_settings(parser, "compression", "threads", "architecture", "temporary_directory")
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Convert, and report the result."""
    from kedge.base.image_format import ImageFormat
    from kedge.base.reference import Reference
    from kedge.base.size import format_size
    from kedge.image.convert import ConvertRequest, convert, read_target
    from kedge.image.workplace import Workplace

    target = read_target(arguments.target, ImageFormat(arguments.format) if arguments.format else None, arguments.tag)
    # data is in files: a name is never one of a registry
    source = os.path.abspath(arguments.source) if arguments.data else arguments.source  # noqa: PTH100 - a text
    request = ConvertRequest(Reference.parse(source), target, arguments.force, arguments.data)
    workplace = Workplace(
        console.settings, console.progress, fix_permissions=arguments.fix_perms, verify=arguments.verify
    )
    done = convert(request, workplace, dry_run=console.dry_run)
    if console.json:
        console.print_json(done.as_dict())
    elif console.dry_run:
        console.print(f"would write {done.output} ({done.form}) from {done.source}")
    else:
        size = f", {format_size(done.size)}" if done.size is not None else ""
        console.progress.note(f"{done.output} ({done.form}{size})")
    return 0
