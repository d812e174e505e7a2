# SPDX-License-Identifier: BSD-3-Clause
"""`kedge image`: what holds the bytes of an image, what changed between two, and which names the cache has."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.base.release import VERSION
from kedge.base.size import format_size
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings

if TYPE_CHECKING:
    from kedge.answers.image_diff import FileChange, ImageDiff
    from kedge.cli.console import Console
    from kedge.compat.contents.size_report import Saving, SizeReport, SizeShare
    from kedge.compat.packages.constraints import PackageChange
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


# Differences and sizes of images as people read them on a terminal.

_MOST_FILES = 20
_LONGEST_VALUE = 60
_NOTHING = "-"


def show_diff(difference: ImageDiff, console: Console, *, everything: bool) -> None:
    """Print packages, config and files; of the files the largest, unless `everything` is set."""
    if difference.is_empty:
        console.print(f"{difference.base} and {difference.new} do not differ")
        return
    _show_packages(difference.packages, console)
    if difference.config:
        console.print(f"Config: {count_things(len(difference.config), 'setting')} changed")
        rows = [(change.name, _shorten(change.before), _shorten(change.after)) for change in difference.config]
        console.print_table(("Setting", "Before", "After"), rows)
        console.print()
    _show_files(difference.files, console, everything=everything)


def _show_packages(changes: Sequence[PackageChange], console: Console) -> None:
    if not changes:
        console.print("Packages: none changed")
        console.print()
        return
    installed = sum(not change.before for change in changes)
    removed = sum(not change.after for change in changes)
    changed = len(changes) - installed - removed
    console.print(f"Packages: {installed} installed, {removed} removed, {changed} changed")
    rows = [
        (change.name, change.before or _NOTHING, change.after or _NOTHING, change.manager, change.place)
        for change in changes
    ]
    console.print_table(("Package", "Before", "After", "Manager", "Directory"), rows)
    console.print()


def _show_files(changes: Sequence[FileChange], console: Console, *, everything: bool) -> None:
    if not changes:
        console.print("Files: none changed")
        return
    counts = []
    for word in ("added", "removed", "changed"):
        files = [change for change in changes if change.change == word]
        counts.append(f"{len(files)} {word} ({_show_growth(sum(change.growth for change in files))})")
    console.print(f"Files: {', '.join(counts)}")
    shown = list(changes) if everything else sorted(changes, key=lambda change: -abs(change.growth))[:_MOST_FILES]
    rows = [(_describe(change), _show_growth(change.growth), change.path) for change in shown]
    console.print_table(("Change", "Size", "Path"), rows)
    if len(shown) < len(changes):
        console.print(f"{len(changes) - len(shown)} more; list them with --all")


def _describe(change: FileChange) -> str:
    return f"{change.change} ({', '.join(change.what)})" if change.what not in ((), ("content",)) else change.change


def _show_growth(growth: int) -> str:
    return f"{'-' if growth < 0 else '+'}{format_size(abs(growth))}"


def _shorten(value: str | None) -> str:
    if value is None:
        return _NOTHING
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"


# The sizes of an image as people read them on a terminal: the answer first, then what can go, then the tables.

_ROWS = 12


def show_size(report: SizeReport, console: Console, *, everything: bool) -> None:
    """Print the report; the largest of every kind, unless `everything` is set."""
    most = None if everything else _ROWS
    stored = f", {format_size(report.stored)} stored" if report.stored else ""
    console.print(f"{report.name}: {format_size(report.size)} in {count_things(report.files, 'file')}{stored}")
    _show_savings(report, console)
    _show_layers(report, console, most)
    _show_shares("Package manager", report.managers, report.size, console, most)
    if any(package.size for package in report.packages):
        console.print()
        rows = [
            (format_size(package.size), package.name, package.version, package.manager)
            for package in report.packages[:most]
            if package.size
        ]
        console.print_table(("Size", "Package", "Version", "Manager"), rows)
    _show_shares("Directory", report.directories, report.size, console, most)
    _show_shares("File type", report.types, report.size, console, most)
    if report.duplicates:
        console.print()
        copies = [(format_size(group.wasted), group.count, "  ".join(group.paths[:2])) for group in report.duplicates]
        console.print_table(("Wasted", "Copies", "Same contents"), copies[:most])


def _show_savings(report: SizeReport, console: Console) -> None:
    if not report.savings:
        return
    sure = sum(saving.size for saving in report.savings if not saving.is_optional)
    console.print(f"{format_size(sure)} can go without loss:" if sure else "Can go, if you do not need it:")
    for saving in report.savings:
        console.print_hanging(f"  {format_size(saving.size):>8}  ", _describe_of_size_text(saving))
        first, *others = saving.better.splitlines()
        for line in (f"-> {first}", *(f"   {line}" for line in others)):
            console.print(f"            {line}")


def _describe_of_size_text(saving: Saving) -> str:
    note = f" ({saving.note})" if saving.note else ""
    example = f", e.g. {saving.examples[0]}" if saving.examples else ""
    return f"{'optional: ' if saving.is_optional else ''}{saving.title}{note}{example}"


def _show_layers(report: SizeReport, console: Console, most: int | None) -> None:
    if not report.layers:
        return
    console.print()
    rows = [
        (
            format_size(layer.size),
            format_size(layer.stored),
            format_size(layer.hidden) if layer.hidden else "",
            number,
            layer.created_by,
        )
        for number, layer in enumerate(report.layers, 1)
    ]
    order = sorted(range(len(rows)), key=lambda place: -report.layers[place].size)[:most]
    console.print_table(("Size", "Stored", "Deleted later", "Layer", "Created by"), [rows[place] for place in order])


def _show_shares(title: str, shares: Sequence[SizeShare], total: int, console: Console, most: int | None) -> None:
    if not shares:
        return
    console.print()
    rows = [
        (format_size(share.size), f"{100 * share.size / max(total, 1):.0f} %", share.files, share.name)
        for share in shares[:most]
    ]
    console.print_table(("Size", "Share", "Files", title), rows)
