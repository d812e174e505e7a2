# SPDX-License-Identifier: BSD-3-Clause
"""`kedge tags`: the tags of an image, newest first, what is in each, and which of them run here."""

from __future__ import annotations

import argparse
import shutil
from typing import TYPE_CHECKING

from kedge.base.frozen import replace
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.target_options import add_target, read_judged_target
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.answers.tags import TagListing, TagQuery, TagRow
    from kedge.cli.console import Console

_SHOWN = 30
_GAP = 3  # columns of a terminal between two of a table; before and after them it has one
_LAST = ("released", "note", "arch", "cuda", "runs here", "runs there")  # those that stay longest, in this order
_RUNS = {
    "native": "yes",
    "minor-version": "yes (minor)",
    "forward-compatible": "yes (forward)",
    "ptx": "yes (PTX)",
    "no": "no",
    "unknown": "unknown",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "repository", metavar="REPO", help="repository, such as nvcr.io/nvidia/pytorch, or pytorch for short"
    )
    parser.add_argument(
        "--cuda", metavar="VERSION", default="", help="only tags with this CUDA: 12, 12.4, '>=12', '>=11.8,<13'"
    )
    parser.add_argument(
        "--arch",
        dest="machine",
        metavar="ARCH",
        default="",
        help="only tags for this architecture, and judge for it: amd64 or arm64",
    )
    parser.add_argument(
        "--since", metavar="RELEASE", default="", help="only this release and newer ones: 24.01 or 2024-01"
    )
    parser.add_argument("--match", metavar="GLOB", default="", help="only tags that match, such as '*-tf2-py3'")
    parser.add_argument(
        "--runs-here",
        action="store_true",
        help="only tags that run on this host, or on what --gpu, --driver and --on name",
    )
    add_target(parser)
    parser.add_argument("--look", action="store_true", help="read the configs of the listed images from the registry")
    parser.add_argument("--limit", metavar="N", type=int, help=f"list at most N tags (default on a terminal: {_SHOWN})")
    parser.add_argument("--all", action="store_true", help="list all tags, also on a terminal")
    parser.add_argument("--offline", action="store_true", help="use the built-in tables only")
    add_login(parser)
    add_settings(parser, "no_https", "ca_bundle", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """List the tags."""
    from kedge.answers.tags import list_image_tags
    from kedge.base.reference import Reference
    from kedge.compat.known_tables import find_repository, load_known_tables
    from kedge.image.workplace import Workplace

    query = _read_query(arguments, console)
    tables = load_known_tables(console.environ, console.progress)
    repository = find_repository(arguments.repository, tables)
    if repository.tag and not query.match:
        query = replace(query, match=repository.tag)
    target = read_judged_target(arguments, console, tables, architecture=query.architecture, is_needed=query.runs_here)
    access = read_access(arguments, console, Reference.parse(f"docker://{repository.name}"))
    workplace = Workplace(console.settings, console.progress, access)
    listing = list_image_tags(repository, workplace, tables, query=query, target=target, offline=arguments.offline)
    if console.json:
        console.print_json(listing.as_dict())
        return 0
    _show(listing, console)
    return 0


def _read_query(arguments: argparse.Namespace, console: Console) -> TagQuery:
    from kedge.answers.tags import TagQuery
    from kedge.base.platform import Platform
    from kedge.compat.contents.tag_filters import read_cuda_range, read_since

    if arguments.limit is not None and (arguments.limit < 1 or arguments.all):
        raise UsageError("--limit takes a number, 1 or more, and cannot be combined with --all")
    if arguments.look and arguments.offline:
        raise UsageError("--look asks the registry, which --offline forbids", hint="leave out one of them")
    if arguments.cuda:
        read_cuda_range(arguments.cuda)
    if arguments.since:
        read_since(arguments.since)
    usual = _SHOWN if arguments.look or (console.is_terminal and not console.json) else None
    return TagQuery(
        cuda=arguments.cuda,
        architecture=Platform.parse(arguments.machine).architecture if arguments.machine else "",
        since=arguments.since,
        match=arguments.match,
        runs_here=arguments.runs_here,
        limit=None if arguments.all else arguments.limit or usual,
        look=arguments.look,
    )


def _show(listing: TagListing, console: Console) -> None:
    if listing.rows:
        _show_rows(listing, console)
    else:
        console.print(f"no tags of {listing.name} fit" if listing.notes else f"{listing.name} has no tags")
    more = listing.total - len(listing.rows)
    if more > 0:
        console.progress.note(f"and {more} more; --all shows them, --since, --cuda and --match choose among them")
    for note in listing.notes:
        console.progress.note(note)


def _show_rows(listing: TagListing, console: Console) -> None:
    found = _choose_columns(listing)
    columns = fit_columns(found, shutil.get_terminal_size().columns) if console.is_terminal else found
    console.print_table(list(columns), list(zip(*columns.values(), strict=True)), is_first_whole=True)
    hidden = [title for title in found if title not in columns]
    if hidden:
        console.progress.note(f"no room for: {', '.join(hidden)}; a wider terminal or --json shows them")


def _choose_columns(listing: TagListing) -> dict[str, list[str]]:
    """The columns in which something stands; the tag always. Versions are short: a line should fit the terminal."""
    rows = listing.rows
    frameworks = {row.framework for row in rows if row.framework_version} - {"CUDA"}  # its own column tells
    is_one = len(frameworks) == 1
    columns = {
        "tag": [row.tag for row in rows],
        "released": [row.released for row in rows],
        "cuda": [".".join(row.cuda.split(".")[:3]) for row in rows],
        "".join(frameworks) if is_one else "framework": [_name_framework(row, is_one=is_one) for row in rows],
        "system": [row.system for row in rows],
        "arch": [",".join(row.architectures) for row in rows],
        "runs here" if listing.target.startswith("this machine") else "runs there": [
            _RUNS.get(row.outcome, row.outcome) for row in rows
        ],
        "note": [", ".join(row.marks) for row in rows],
    }
    return {title: cells for title, cells in columns.items() if title == "tag" or any(cells)}


def fit_columns(columns: dict[str, list[str]], width: int) -> dict[str, list[str]]:
    """Return the columns that a terminal has room for; the tag stays, and longest the verdict."""
    kept = dict(columns)
    ranked = sorted(list(columns)[1:], key=lambda title: _LAST.index(title) if title in _LAST else -1)
    for title in ranked:
        if sum(max(map(len, (name, *cells))) + _GAP for name, cells in kept.items()) + 2 <= width + _GAP:
            break
        del kept[title]
    return kept


def _name_framework(row: TagRow, *, is_one: bool) -> str:
    version = row.framework_version.partition("+")[0]
    if not version or row.framework == "CUDA":
        return ""
    return version if is_one else f"{row.framework} {version}"
