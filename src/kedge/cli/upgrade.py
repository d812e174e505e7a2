# SPDX-License-Identifier: BSD-3-Clause
"""`kedge upgrade`: prints the lines that bring a newer kedge from where this one came from; it runs none of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.answers.own_origin import find_origin
from kedge.base.release import VERSION

if TYPE_CHECKING:
    from kedge.cli.console import Console

_UNKNOWN = (
    "Install the newer one from its clone, or from the file you were given (kedge help install). "
    "Not by its name from an index: the 'kedge' there may be another project's."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""
    del parser


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print where kedge came from, and the lines."""
    del arguments
    origin = find_origin()
    if console.json:
        console.print_json({"version": VERSION, "origin": origin.what, "lines": list(origin.lines)})
    console.print(f"Version {VERSION} came from {origin.what}.")
    console.print("To upgrade it:" if origin.lines else _UNKNOWN)
    for line in origin.lines:
        console.print(f"  {line}")
    return 0
