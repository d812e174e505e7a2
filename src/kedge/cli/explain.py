# SPDX-License-Identifier: BSD-3-Clause
"""`kedge explain`: what is in an image, what it needs, and whether it runs here or there, before anything is pulled."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.explain_text import show_comparison, show_explanation
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.target_options import add_target, read_target
from kedge.errors import KedgeError, UsageError, WillNotRun
from kedge.release import VERSION

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target
    from kedge.ops.explain.explain import Explanation


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="a reference, SIF file, directory or archive; several are compared"
    )
    add_target(parser)
    parser.add_argument("--check", action="store_true", help=f"end with {WillNotRun.exit_code} where it will not run")
    parser.add_argument("--sources", action="store_true", help="say where each fact is known from")
    parser.add_argument("--offline", action="store_true", help="ask nobody: what the store and the tables know")
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write one page to send to somebody, as well; - prints it"
    )
    parser.add_argument("--force", action="store_true", help="write over a FILE that is there")
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "library_url", "cache_directory", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Explain one image, or compare several."""
    from kedge.ops.explain.known_tables import load_known_tables

    if arguments.html is not None:
        from kedge.posix.files import refuse_existing

        if len(arguments.images) > 1:
            raise UsageError("--html makes the page of one image", hint="call it once for each image")
        if not _is_printed(arguments):
            refuse_existing(arguments.html, force=arguments.force)  # before anything is asked
        elif console.json:
            raise UsageError("--json and --html - both print", hint="leave out one, or name a file")
    tables = load_known_tables(console.environ, console.progress)
    target = read_target(arguments, console, tables)
    if len(arguments.images) > 1:
        return _compare(arguments, console, tables, target)
    found = _explain(arguments.images[0], arguments, console, tables, target)
    if arguments.html is not None and not _is_printed(arguments):
        _write_page(_make_page(found, tables), arguments.html, force=arguments.force)
        console.progress.note(f"written: {arguments.html}")
    if console.json:
        console.print_json(found.as_dict())
    elif _is_printed(arguments):
        console.write_bytes(_make_page(found, tables))
    else:
        show_explanation(found, tables, console, sources=arguments.sources)
    return _choose_status([found], arguments)


def _is_printed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.html == Path("-"))


def _explain(text: str, arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> Explanation:
    from kedge.model.reference import Reference
    from kedge.ops.explain.explain import explain
    from kedge.ops.setup.workplace import Workplace

    reference = Reference.parse(text)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    return explain(reference, workplace, target=target, offline=arguments.offline, tables=tables)


def _compare(arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> int:
    """All that can be explained; the status is that of the first that cannot."""
    found: list[Explanation | KedgeError] = []
    for text in arguments.images:
        try:
            found.append(_explain(text, arguments, console, tables, target))
        except KedgeError as problem:
            found.append(problem)
    if console.json:
        documents = [
            {"name": text, **({"problem": each.as_dict()} if isinstance(each, KedgeError) else each.as_dict())}
            for text, each in zip(arguments.images, found, strict=True)
        ]
        console.print_json(documents)
    else:
        show_comparison(arguments.images, found, target, console)
    for each in found:
        if isinstance(each, KedgeError):
            return each.exit_code
    return _choose_status([each for each in found if not isinstance(each, KedgeError)], arguments)


def _choose_status(found: list[Explanation], arguments: argparse.Namespace) -> int:
    runs = [each.verdict.runs for each in found if each.verdict is not None]
    return WillNotRun.exit_code if arguments.check and False in runs else 0


def _make_page(found: Explanation, tables: Tables) -> bytes:
    from kedge.ops.explain.explain import chart_explanation
    from kedge.pages.explain_page import render_explanation

    page = render_explanation(
        found.traits,
        found.verdict,
        found.target,
        chart_explanation(found, tables),
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=VERSION,
    )
    return page.encode("utf-8", "replace")


def _write_page(page: bytes, path: Path, *, force: bool) -> None:
    from kedge.posix.files import atomic_output

    with atomic_output(path, force=force) as file:
        file.write(page)
