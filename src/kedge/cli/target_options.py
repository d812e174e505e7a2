# SPDX-License-Identifier: BSD-3-Clause
"""The options that name what images are judged against: a GPU and a driver, a queue of a site, or this host."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.compat.tables.load import Tables
    from kedge.compat.target import Target


def add_target(parser: argparse.ArgumentParser) -> None:
    """`--gpu`, `--driver` and `--on`."""
    parser.add_argument("--gpu", metavar="GPU", help="judge for this GPU, such as H200 or V100-SXM2-32GB")
    parser.add_argument("--driver", metavar="VERSION", help="judge for this driver, such as 535.104.05 or 535")
    parser.add_argument(
        "--on",
        "--site",
        dest="place",
        metavar="SITE[:QUEUE]",
        help="judge for a partition or queue of a site (see 'kedge site list')",
    )


def read_target(arguments: argparse.Namespace, console: Console, tables: Tables, *, architecture: str = "") -> Target:
    """Return the target that the options name; this host where they name none."""
    from kedge.answers.targets import find_target

    return find_target(
        gpu=arguments.gpu,
        driver=arguments.driver,
        site=arguments.place,
        architecture=architecture,
        environ=console.environ,
        settings=console.settings,
        tables=tables,
    )


def read_judged_target(
    arguments: argparse.Namespace, console: Console, tables: Tables, *, architecture: str, is_needed: bool
) -> Target | None:
    """Return the target that the options name, or this host; None where they name none and this host has no GPU."""
    from kedge.answers.targets import keep_judged

    target = read_target(arguments, console, tables, architecture=architecture)
    is_named = bool(arguments.gpu or arguments.driver or arguments.place)
    return keep_judged(target, is_named=is_named, is_needed=is_needed)
