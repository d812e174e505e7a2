# SPDX-License-Identifier: BSD-3-Clause
"""`kedge inspect`: Apptainer's flags and output, and --oci for the OCI config."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.image_argument import is_reference
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.redaction import escape_controls, escape_json
from kedge.image.formats.singularityd.inspect_report import (
    ReportSelection,
    render_document,
    render_text,
    select_document,
)
from kedge.image.inspect import Inspection, inspect_path
from kedge.image.sources.classify import SourceKind, classify_path

if TYPE_CHECKING:
    from kedge.cli.console import Console

_PARTS = {
    "labels": ("-l", "the labels (default)"),
    "deffile": ("-d", "the definition file"),
    "runscript": ("-r", "the runscript"),
    "startscript": ("-s", "the start script of instances"),
    "test": ("-t", "the test script"),
    "environment": ("-e", "the environment settings"),
    "helpfile": ("-H", "the help text of the image"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "image", metavar="IMAGE", help="a SIF file, SquashFS file, sandbox directory or image reference"
    )
    for name, (short, text) in _PARTS.items():
        parser.add_argument(short, f"--{name}", action="store_true", help=text)
    parser.add_argument("--list-apps", action="store_true", help="the names of the SCIF apps")
    parser.add_argument("--app", metavar="NAME", default="", help="inspect this SCIF app, not the whole image")
    parser.add_argument("--all", action="store_true", help="everything, as JSON")
    parser.add_argument("--oci", action="store_true", help="the OCI config: entrypoint, user, working directory, ...")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON")
    add_login(parser)
    add_settings(
        parser, "architecture", "no_https", "ca_bundle", "library_url", "temporary_directory", "cache_directory"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Inspect one image."""
    path = Path(arguments.image)
    # mostly a file, which needs no further imports
    if not is_reference(arguments.image) and path.exists() and classify_path(path) is not SourceKind.ARCHIVE:
        _show_inspection(inspect_path(path), arguments, console)
        return 0
    from kedge.base.reference import Reference
    from kedge.image.inspect_remote import inspect_reference
    from kedge.image.workplace import Workplace

    reference = Reference.parse(arguments.image)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    _show_inspection(inspect_reference(reference, workplace), arguments, console)
    return 0


def _show_inspection(inspection: Inspection, arguments: argparse.Namespace, console: Console) -> None:
    """Print what was asked for."""
    if arguments.oci:
        console.print_json(inspection.oci_config or {})
        return
    parts = frozenset(name for name in _PARTS if getattr(arguments, name))
    selection = ReportSelection(parts, arguments.app, arguments.list_apps, arguments.all)
    if arguments.app and arguments.app not in inspection.report.apps:
        known = ", ".join(sorted(inspection.report.apps)) or "none"
        console.progress.warn(f"{arguments.image} has no app '{arguments.app}'; its apps: {known}")
    if arguments.all or console.json:
        text, escape = render_document(select_document(inspection.report, selection)) + "\n", escape_json
    else:
        text, escape = render_text(inspection.report, selection), escape_controls
    if console.is_terminal:  # an image must not be able to steer the terminal; files and pipes get it as it is
        text = escape(text)
    console.write_bytes(text.encode("utf-8", "replace"))
