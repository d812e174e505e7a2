# SPDX-License-Identifier: BSD-3-Clause
"""`kedge search`: images by words, in NVIDIA's catalogue and on Docker Hub."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.base.counting import count_things
from kedge.cli.options import add_settings
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.answers.search import SearchResult
    from kedge.cli.console import Console
    from kedge.image.registry.catalog import CatalogEntry

_MOST = 100
_LONGEST_LINE = 90


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "words",
        metavar="WORDS",
        nargs="+",
        help="words to search for, such as pytorch, gromacs or 'image classification'",
    )
    parser.add_argument("--ngc", action="store_true", help="search NVIDIA's catalogue only")
    parser.add_argument("--hub", action="store_true", help="search Docker Hub only")
    parser.add_argument("--offline", action="store_true", help="search the built-in tables only")
    parser.add_argument("--in-library", action="store_true", help="search the library behind library:// only")
    parser.add_argument("--signed", action="store_true", help="list signed images of the library only")
    parser.add_argument("--limit", metavar="N", type=int, default=15, help="results per catalogue (default: 15)")
    add_settings(parser, "ca_bundle", "library_url", "architecture", "no_https")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Search, and print what was found."""
    from kedge.answers.search import search
    from kedge.compat.known_tables import load_known_tables
    from kedge.image.workplace import Workplace

    if not 1 <= arguments.limit <= _MOST:
        raise UsageError(f"--limit takes a number from 1 to {_MOST}")
    if arguments.in_library or arguments.signed or arguments.library_url:
        return _search_library(arguments, console)
    result = search(
        arguments.words,
        Workplace(console.settings, console.progress),
        load_known_tables(console.environ, console.progress),
        catalogs=_choose_catalogs(arguments),
        limit=arguments.limit,
    )
    for title, why in result.silent.items():
        console.progress.warn(f"{title} was not searched: {why}")
    if console.json:
        console.print_json(_make_document(arguments, result))
    elif result.entries:
        _show(result, arguments, console)
    else:
        console.print(f"nothing found for '{' '.join(arguments.words)}'; try fewer words, or another spelling")
    return 0


def _search_library(arguments: argparse.Namespace, console: Console) -> int:
    """Print what the library has, in Apptainer's format."""
    from dataclasses import asdict

    from kedge.image.library_images import search_library
    from kedge.image.workplace import Workplace

    workplace, words = Workplace(console.settings, console.progress), " ".join(arguments.words)
    found = search_library(words, workplace, only_signed=arguments.signed)
    architecture = workplace.platform.architecture
    if console.json:
        console.print_json({"words": arguments.words, "arch": architecture, "results": [asdict(one) for one in found]})
    if not found:
        console.print(f'No container images found for {architecture} matching "{words}".\n')
        return 0
    console.print(f'Found {len(found)} container images for {architecture} matching "{words}":\n')
    for each in found:
        signed = f"Signed by: {','.join(each.fingerprints)}" if each.fingerprints else ""
        about = "".join(f"\t\t{line}\n" for line in (each.description, signed) if line)
        console.print(f"\tlibrary://{each.name}:{','.join(each.tags)}\n{about}")
    return 0


def _choose_catalogs(arguments: argparse.Namespace) -> tuple[str, ...]:
    from kedge.answers.search import HUB, NGC

    if arguments.offline:
        if arguments.ngc or arguments.hub:
            raise UsageError("--offline asks no catalogue", hint="leave out --ngc and --hub, or --offline")
        return ()
    if arguments.ngc == arguments.hub:
        return NGC, HUB
    return (NGC,) if arguments.ngc else (HUB,)


def _show(result: SearchResult, arguments: argparse.Namespace, console: Console) -> None:
    rows = [(entry.name, entry.latest_tag or entry.known_tag, _describe(entry)) for entry in result.entries]
    console.print_table(("image", "newest tag", "what it is"), rows)
    for title, total in result.totals.items():
        shown = sum(1 for entry in result.entries if entry.catalog == title)
        if total > shown:
            are = "is" if shown == 1 else "are"
            console.progress.note(
                f"{title}: {count_things(total, 'result')}, {shown} {are} shown; --limit N shows more"
            )
    for warning in dict.fromkeys(f"{entry.name} is {entry.warning}" for entry in result.entries if entry.warning):
        console.progress.warn(warning)
    if arguments.offline:
        console.progress.note("searched the built-in tables only (--offline)")
    console.progress.note(f"the tags of an image: kedge tags {result.entries[0].name}")


def _describe(entry: CatalogEntry) -> str:
    text = entry.description or entry.title
    if entry.source:  # what it is known to do is the answer: all of it
        return text
    if entry.is_official:
        text = f"(official) {text}".strip()
    elif entry.stars:
        text = f"({entry.stars} stars) {text}".strip()
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 1].rstrip() + "…"


def _make_document(arguments: argparse.Namespace, result: SearchResult) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "words": arguments.words,
        "results": [asdict(entry) for entry in result.entries],
        "totals": result.totals,
        "not_searched": result.silent,
    }
