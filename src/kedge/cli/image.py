# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image`: what holds the bytes of an image, what changed between two, and which names the cache has."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.release import VERSION
from kedge.cli.image_names import configure_names, run_list, run_rm, run_tag
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.contents.size_report import SizeReport

_IMAGE = "reference, SIF file, directory or archive"


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    size = commands.add_parser("size", help="Show what takes space in an image, and what can go")
    size.add_argument("image", metavar="IMAGE", help=_IMAGE)
    size.add_argument("--all", action="store_true", help="list everything, not only the largest")
    size.add_argument("--page", metavar="FILE", type=Path, help="also write the result as an HTML page with a picture")
    size.add_argument("--force", action="store_true", help="overwrite FILE")
    diff = commands.add_parser("diff", help="Show what changed between two images: files, packages, config")
    diff.add_argument("base", metavar="BASE", help=_IMAGE)
    diff.add_argument("new", metavar="NEW", help=_IMAGE)
    diff.add_argument("--all", action="store_true", help="list all files that changed, not only the largest")
    for command in (size, diff):
        add_login(command)
        add_settings(command, "architecture", "no_https", "ca_bundle", "cache_directory", "retries")
    configure_names(commands)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Do what the subcommand says."""
    commands = {"size": _run_size, "diff": _run_diff, "list": run_list, "tag": run_tag, "rm": run_rm}
    return commands[arguments.command](arguments, console)


def _run_size(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.answers.image_size import measure_image
    from kedge.base.reference import Reference
    from kedge.cli.size_text import show_size
    from kedge.image.workplace import Workplace
    from kedge.system.files import HTML, refuse_existing_text

    if arguments.page is not None:
        refuse_existing_text(arguments.page, force=arguments.force, beginning=HTML)  # before anything is read
    reference = Reference.parse(arguments.image)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    report = measure_image(reference, workplace)
    if arguments.page is not None:
        _write_page(report, arguments.page, force=arguments.force)
        console.progress.note(f"wrote {arguments.page}")
    if console.json:
        console.print_json(report.as_dict())
    else:
        show_size(report, console, everything=arguments.all)
    return 0


def _write_page(report: SizeReport, path: Path, *, force: bool) -> None:
    from kedge.answers.pages.size_page import render_size
    from kedge.system.files import atomic_output

    page = render_size(report, made=time.strftime("%Y-%m-%d %H:%M %Z"), version=VERSION)
    with atomic_output(path, force=force) as file:
        file.write(page.encode("utf-8", "replace"))


def _run_diff(arguments: argparse.Namespace, console: Console) -> int:
    from kedge.answers.image_diff import diff_images
    from kedge.base.reference import Reference
    from kedge.cli.image_text import show_diff
    from kedge.image.workplace import Workplace

    base, new = Reference.parse(arguments.base), Reference.parse(arguments.new)
    remote = base if not base.is_local else new
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, remote))
    difference = diff_images(base, new, workplace)
    if console.json:
        console.print_json(difference.as_dict())
    else:
        show_diff(difference, console, everything=arguments.all)
    return 0
