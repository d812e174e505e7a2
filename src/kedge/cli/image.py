# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image`: what holds the bytes of an image, what changed between two, and which names the cache has."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.release import VERSION
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.contents.size_report import SizeReport
    from kedge.image.local_names import NamedImage

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


# `kedge image list`, `tag` and `rm`: images of the cache and the names they have there.


def configure_names(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands."""
    listing = commands.add_parser("list", help="List the images of the cache that have a name")
    listing.add_argument("name", metavar="NAME", nargs="*", help="list images of these names only")
    tag = commands.add_parser("tag", help="Give an image of the cache a further name")
    tag.add_argument("source", metavar="NAME", help="name of an image in the cache")
    tag.add_argument("target", metavar="NEW", help="further name, such as HOST/NAME:TAG")
    remove = commands.add_parser("rm", help="Remove images of the cache by their names")
    remove.add_argument("name", metavar="NAME", nargs="+", help="name of an image in the cache")
    for command in (listing, tag, remove):
        add_settings(command, "architecture", "cache_directory")


def run_list(arguments: argparse.Namespace, console: Console) -> int:
    """Print the images, the newest first."""
    from kedge.base.size import format_size
    from kedge.image.local_names import list_named
    from kedge.image.store.resolved_names import shorten_name
    from kedge.image.workplace import Workplace

    with Workplace(console.settings, console.progress).open_store() as store:
        images = [image for image in list_named(store) if _is_asked(image, arguments.name)]
    if console.json:
        console.print_json([image.as_dict() for image in images])
    elif console.quiet:
        for image in images:
            console.print(image.digest.hex[:12])
    else:
        rows = [
            (name, tag, image.digest.hex[:12], _describe_age(time.time() - image.when), format_size(image.size))
            for image in images
            for name, tag in [_split_tag(shorten_name(image.reference))]
        ]
        console.print_table(("repository", "tag", "image id", "named", "size"), rows, is_first_whole=True)
    return 0


def run_tag(arguments: argparse.Namespace, console: Console) -> int:
    """Add the name."""
    from kedge.image.local_names import tag_image
    from kedge.image.workplace import Workplace

    workplace = Workplace(console.settings, console.progress)
    digest = tag_image(arguments.source, arguments.target, workplace)
    if console.json:
        console.print_json({"name": arguments.target, "digest": str(digest)})
    console.progress.note(f"{arguments.target}: {digest}")
    return 0


def run_rm(arguments: argparse.Namespace, console: Console) -> int:
    """Remove the names, and what only they need."""
    from kedge.base.size import format_size
    from kedge.image.local_names import remove_image
    from kedge.image.workplace import Workplace

    workplace = Workplace(console.settings, console.progress)
    freed = {name: remove_image(name, workplace) for name in arguments.name}
    if console.json:
        console.print_json([{"name": name, "size": size} for name, size in freed.items()])
    for name, size in freed.items():
        console.print(f"Removed {name} ({format_size(size)})")
    return 0


def _is_asked(image: NamedImage, names: list[str]) -> bool:
    """Whether an image has one of the names, with or without its tag; none means all."""
    from kedge.image.store.resolved_names import shorten_name

    asked, shown = [shorten_name(name) for name in names], shorten_name(image.reference)
    return not names or shown in asked or _split_tag(shown)[0] in asked


def _split_tag(name: str) -> tuple[str, str]:
    if "@" in name:
        return name.partition("@")[0], "<none>"
    path, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{path}{slash}{base}", tag or "latest"


def _describe_age(seconds: float) -> str:
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
