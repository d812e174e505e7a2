# SPDX-License-Identifier: BSD-3-Clause
"""`kedge explain`: what is in an image, what it needs, and whether it runs on a GPU or cluster; nothing is pulled."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.base.release import VERSION
from kedge.cli.explain_text import show_comparison, show_explanation
from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.target_options import add_target, read_target
from kedge.errors import KedgeError, UsageError, WillNotRun

if TYPE_CHECKING:
    from kedge.answers.explain import Explanation
    from kedge.cli.console import Console
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="reference, SIF file, directory or archive; several are compared",
    )
    add_target(parser)
    parser.add_argument("--check", action="store_true", help=f"exit with {WillNotRun.exit_code} if it does not run")
    parser.add_argument("--all", action="store_true", help="also list what is unknown, one line each")
    parser.add_argument("--sources", action="store_true", help="show where each fact comes from")
    parser.add_argument("--offline", action="store_true", help="use the cache and the built-in tables only")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write the result as an HTML page; - prints it")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "library_url", "cache_directory", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Explain one image, or compare several."""
    from kedge.compat.known_tables import load_known_tables

    if arguments.html is not None:
        from kedge.system.files import HTML, refuse_existing_text

        if len(arguments.images) > 1:
            raise UsageError("--html takes one image", hint="run it once for each image")
        if not _is_printed(arguments):
            refuse_existing_text(arguments.html, force=arguments.force, beginning=HTML)  # before anything is asked
        elif console.json:
            raise UsageError(
                "--json and --html - both write to standard output", hint="leave one out, or give --html a file"
            )
    tables = load_known_tables(console.environ, console.progress)
    target = read_target(arguments, console, tables)
    if len(arguments.images) > 1:
        return _compare(arguments, console, tables, target)
    explanation = _explain(arguments.images[0], arguments, console, tables, target)
    if arguments.html is not None and not _is_printed(arguments):
        _write_page(_make_page(explanation, tables), arguments.html, force=arguments.force)
        console.progress.note(f"wrote {arguments.html}")
    if console.json:
        console.print_json(explanation.as_dict())
    elif _is_printed(arguments):
        console.write_bytes(_make_page(explanation, tables))
    else:
        show_explanation(explanation, tables, console, sources=arguments.sources, everything=arguments.all)
    return _choose_status([explanation], arguments)


def _is_printed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.html == Path("-"))


def _explain(text: str, arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> Explanation:
    from kedge.answers.explain import explain
    from kedge.base.reference import Reference
    from kedge.image.workplace import Workplace

    reference = Reference.parse(text)
    workplace = Workplace(console.settings, console.progress, read_access(arguments, console, reference))
    return explain(reference, workplace, target=target, offline=arguments.offline, tables=tables)


def _compare(arguments: argparse.Namespace, console: Console, tables: Tables, target: Target) -> int:
    """Compare all references that can be explained; returns the status of the first that cannot."""
    explanations: list[Explanation | KedgeError] = []
    for text in arguments.images:
        try:
            explanations.append(_explain(text, arguments, console, tables, target))
        except KedgeError as problem:
            explanations.append(problem)
    if console.json:
        documents = [
            {"name": text, **({"problem": result.as_dict()} if isinstance(result, KedgeError) else result.as_dict())}
            for text, result in zip(arguments.images, explanations, strict=True)
        ]
        console.print_json(documents)
    else:
        show_comparison(arguments.images, explanations, target, console)
    problems = [result for result in explanations if isinstance(result, KedgeError)]
    if problems:
        return problems[0].exit_code
    return _choose_status([result for result in explanations if not isinstance(result, KedgeError)], arguments)


def _choose_status(explanations: list[Explanation], arguments: argparse.Namespace) -> int:
    runs = [explanation.verdict.runs for explanation in explanations if explanation.verdict is not None]
    return WillNotRun.exit_code if arguments.check and False in runs else 0


def _make_page(explanation: Explanation, tables: Tables) -> bytes:
    from kedge.answers.explain import chart_explanation
    from kedge.answers.pages.explain_page import render_explanation

    page = render_explanation(
        explanation.traits,
        explanation.verdict,
        explanation.target,
        chart_explanation(explanation, tables),
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=VERSION,
    )
    return page.encode("utf-8", "replace")


def _write_page(page: bytes, path: Path, *, force: bool) -> None:
    from kedge.system.files import atomic_output

    with atomic_output(path, force=force) as file:
        file.write(page)
