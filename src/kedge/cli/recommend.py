# SPDX-License-Identifier: BSD-3-Clause
"""`kedge recommend`: the newest tag of an image that runs natively on a host, or on a queue of a site."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.login import add_login, read_access
from kedge.cli.options import add_settings
from kedge.cli.target_options import add_target, read_target

if TYPE_CHECKING:
    from kedge.answers.recommend import Advice
    from kedge.cli.console import Console
    from kedge.compat.recommend import TagChoice


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("image", metavar="IMAGE", help="such as pytorch, or nvcr.io/nvidia/tensorflow")
    add_target(parser)
    parser.add_argument("--match", metavar="GLOB", default="", help="only tags that match, such as '*-tf2-py3'")
    parser.add_argument(
        "--needs",
        metavar="WHAT",
        action="append",
        default=[],
        help="only tags known to have this, such as 'pytorch>=2.3', python=3.10 or dali; repeatable",
    )
    parser.add_argument(
        "--variant",
        choices=("base", "runtime", "devel", "cudnn"),
        default="",
        help="variant of a CUDA image: base (cudart), runtime (libraries), devel (compiler), cudnn (with cuDNN)",
    )
    parser.add_argument("--offline", action="store_true", help="use the built-in tables only")
    add_login(parser)
    add_settings(parser, "architecture", "no_https", "ca_bundle", "retries")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Recommend a tag."""
    from kedge.answers.recommend import recommend_tag
    from kedge.base.reference import Reference
    from kedge.compat.known_tables import find_repository, load_known_tables
    from kedge.image.workplace import Workplace

    tables = load_known_tables(console.environ, console.progress)
    repository = find_repository(arguments.image, tables)
    target = read_target(arguments, console, tables)
    access = read_access(arguments, console, Reference.parse(f"docker://{repository.name}"))
    advice = recommend_tag(
        repository,
        Workplace(console.settings, console.progress, access),
        tables,
        target=target,
        match=arguments.match,
        needs=arguments.needs,
        variant=arguments.variant,
        offline=arguments.offline,
    )
    if console.json:
        console.print_json(advice.as_dict())
    else:
        _show(advice, console)
    return 0


def _show(advice: Advice, console: Console) -> None:
    if advice.best is None:
        _show_branches(advice, console)
    else:
        _show_choice(advice, advice.best, console)
    for note in advice.notes:
        console.progress.note(note)


def _show_choice(advice: Advice, best: TagChoice, console: Console) -> None:
    found = advice.recommendation
    subjects = ("gpu", "requirement") if len(found.by_driver) > 1 else ("driver", "gpu", "requirement")
    console.print(advice.name)
    console.print_hanging("  for:   ", found.target)
    console.print_hanging("  why:   ", found.sentence)
    for each in best.verdict.judgements:
        if each.subject in subjects and each.sentence:
            console.print_hanging("         ", each.sentence)
    if found.other is not None:
        console.print_hanging("  newer: ", f"{found.image}:{found.other.tag}, which {found.other.verdict.headline}")
    for caveat in advice.caveats:
        console.print_hanging("  but:   ", caveat)
    console.print(f"  get:   {advice.command}")


def _show_branches(advice: Advice, console: Console) -> None:
    """Print one line for each driver branch, and how to learn which of them a node has."""
    from kedge.compat.recommend import WAYS
    from kedge.compat.rules.driver_lookup import FIND_DRIVER
    from kedge.compat.verdict import NATIVE

    found = advice.recommendation
    console.print_hanging("", f"{advice.name}: the tag depends on the driver of {found.target}, which is unknown")
    for each in found.by_driver:
        driver = f"driver {each.branch}" + (f" (CUDA {each.cuda})" if each.cuda else "")
        way = "" if each.outcome == NATIVE else f"  ({WAYS[each.outcome]}; no tag is known to run natively)"
        console.print(f"  {driver + ':':23} {each.tag}{way}")
    console.print_hanging("  why:   ", "newest native tag per driver branch, unless noted")
    console.print_hanging("  find:  ", FIND_DRIVER)
    for caveat in advice.caveats:
        console.print_hanging("  but:   ", caveat)
    console.print(f"  get:   kedge pull docker://{advice.name}:TAG")
