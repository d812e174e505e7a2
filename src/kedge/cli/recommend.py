# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recommend`: the newest tag of an image that runs natively on a machine, or on a queue of a site."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.target_options import add_target, read_target

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.ops.recommend import Advice


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("image", metavar="IMAGE", help="such as pytorch, or nvcr.io/nvidia/tensorflow")
    add_target(parser)
    parser.add_argument("--match", metavar="GLOB", default="", help="only tags that fit, such as '*-tf2-py3'")
    parser.add_argument("--offline", action="store_true", help="ask nobody: what the tables know")
    add_login(parser)
    add_settings(parser, "no_https", "ca_bundle", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Recommend a tag."""
    from kedge.model.reference import Reference
    from kedge.ops.known_tables import find_repository, load_known_tables
    from kedge.ops.recommend import recommend_tag
    from kedge.ops.workplace import Workplace

    tables = load_known_tables(console.environ, console.settings, console.progress)
    repository = find_repository(arguments.image, tables)
    target = read_target(arguments, console, tables)
    access = read_access(arguments, console, Reference.parse(f"docker://{repository.name}"))
    advice = recommend_tag(
        repository,
        Workplace(console.settings, console.progress, access),
        tables,
        target=target,
        match=arguments.match,
        offline=arguments.offline,
    )
    if console.json:
        console.print_json(advice.as_dict())
    else:
        _show(advice, console)
    return 0


def _show(advice: Advice, console: Console) -> None:
    found = advice.recommendation
    console.print(advice.name)
    console.print(f"  for:   {found.target}")
    console.print(f"  why:   {found.sentence}")
    for each in advice.best.verdict.judgements:
        if each.subject in ("driver", "gpu", "requirement") and each.sentence:
            console.print(f"         {each.sentence}")
    if found.other is not None:
        console.print(f"  newer: {found.image}:{found.other.tag}, which {found.other.verdict.headline}")
    for caveat in advice.caveats:
        console.print(f"  but:   {caveat}")
    console.print(f"  get:   {advice.command}")
    for note in advice.notes:
        console.progress.note(note)
