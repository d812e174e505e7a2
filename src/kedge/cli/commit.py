# SPDX-License-Identifier: BSD-3-Clause
"""`kedge commit`: the changes made in `kedge shell --overlay DIRECTORY IMAGE` as a new image, or as a recipe."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.base.image_format import ImageFormat
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings, add_verify
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "overlay", metavar="OVERLAY", help="overlay directory, ext3 image, or instance://NAME of a running instance"
    )
    parser.add_argument("output", metavar="OUTPUT", nargs="?", help="new image; its ending says the format")
    parser.add_argument("--base", metavar="IMAGE", default="", help="image below the overlay (default: remembered)")
    parser.add_argument("--format", metavar="FORMAT", choices=[*ImageFormat], help=f"one of {', '.join(ImageFormat)}")
    parser.add_argument("--tag", metavar="NAME", help="name inside OCI layouts and archives")
    parser.add_argument(
        "--recipe", action="store_true", help="print the commands of 'kedge shell --record' as a definition file"
    )
    parser.add_argument("--dockerfile", action="store_true", help="the same as a Dockerfile")
    parser.add_argument("--force", "-F", action="store_true", help="overwrite OUTPUT")
    add_verify(parser)
    add_login(parser)
    add_settings(
        parser, "architecture", "compression", "no_https", "ca_bundle", "temporary_directory", "cache_directory"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the recipe, write the image, or both."""
    from kedge.base.reference import Reference
    from kedge.base.size import format_size
    from kedge.builds.commit import CommitRequest, commit, print_recipe
    from kedge.cli.build_words import read_epoch
    from kedge.image.convert import read_target
    from kedge.image.workplace import Workplace

    kind = "dockerfile" if arguments.dockerfile else "definition" if arguments.recipe else ""
    if arguments.output is None and not kind:
        raise UsageError("name the new image", hint=f"kedge commit {arguments.overlay} new.sif")
    access = read_access(arguments, console, Reference.parse(arguments.base)) if arguments.base else None
    workplace = Workplace(console.settings, console.progress, access, verify=arguments.verify)
    form = ImageFormat(arguments.format) if arguments.format else None
    target = read_target(arguments.output, form, arguments.tag) if arguments.output else None
    epoch = read_epoch(console.environ)
    request = CommitRequest(arguments.overlay, arguments.base, target, arguments.force, epoch)
    if kind:
        recipe = print_recipe(request, workplace, console.environ, kind)
        if console.json and target is None:
            console.print_json({"kind": kind, "recipe": recipe})
        else:
            console.write_bytes(recipe.encode("utf-8", "replace"))
    if target is not None:
        made = commit(request, workplace, console.environ)
        if console.json:
            console.print_json(made.as_dict())
        size = f", {format_size(made.size)}" if made.size is not None else ""
        console.progress.note(
            f"wrote {made.output}{size}: {made.base} with {made.changed} files changed, {made.deleted} deleted"
        )
    return 0
