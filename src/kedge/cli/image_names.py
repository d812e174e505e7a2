# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image list`, `tag` and `rm`: images of the cache and the names they have there."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.image.local_names import NamedImage


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
    from kedge.image.store.tagged_images import shorten_name
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
    from kedge.image.store.tagged_images import shorten_name

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
