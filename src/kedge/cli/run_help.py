# SPDX-License-Identifier: BSD-3-Clause
"""`kedge run-help`: the help text that an image, or an app in it, carries."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.image_argument import is_reference
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.redaction import escape_controls
from kedge.image.inspect import inspect_path
from kedge.image.sources.classify import SourceKind, classify_path

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.inspect import Inspection

_NO_HELP = "No help sections were defined for this image"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "image", metavar="IMAGE", help="a SIF file, SquashFS file, sandbox directory or image reference"
    )
    parser.add_argument("--app", metavar="NAME", default="", help="show the help of this SCIF app")
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "library_url", "cache_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the help text; an image without one is no error."""
    report = _inspect(arguments, console).report
    app = report.apps.get(arguments.app) if arguments.app else None
    text = (app.helpfile if app else "") if arguments.app else report.helpfile
    if console.json:
        console.print_json({"image": arguments.image, "app": arguments.app or None, "help": text or None})
        return 0
    shown = (text or _NO_HELP) + "\n"
    console.write_bytes((escape_controls(shown) if console.is_terminal else shown).encode("utf-8", "replace"))
    return 0


def _inspect(arguments: argparse.Namespace, console: Console) -> Inspection:
    path = Path(arguments.image)
    if not is_reference(arguments.image) and path.exists() and classify_path(path) is not SourceKind.ARCHIVE:
        return inspect_path(path)
    from kedge.base.reference import Reference  # late, all of it: most often it is a file
    from kedge.image.inspect_remote import inspect_reference
    from kedge.image.workplace import Workplace

    reference = Reference.parse(arguments.image)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    return inspect_reference(reference, workplace)
