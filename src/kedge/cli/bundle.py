# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bundle`: writes one executable file with all of kedge in it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The file, and for which machine."""
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="file to write (default: kedge-ARCH)")
    parser.add_argument(
        "--arch", metavar="ARCH", default="", help="architecture: x86_64 or aarch64 (default: that of this host)"
    )
    parser.add_argument("-F", "--force", action="store_true", help="replace OUT if it exists")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Write it, and say how it gets to a cluster."""
    import shlex

    from kedge.base.size import format_size
    from kedge.tools.bundle.make import make_bundle

    names = {"amd64": "x86_64", "arm64": "aarch64"}
    made = make_bundle(arguments.out, names.get(arguments.arch, arguments.arch), force=arguments.force)
    if console.json:
        console.print_json(made.as_dict())
    shown = _shorten(made.path)
    console.progress.note(
        f"{shown}: kedge for {made.machine}, {format_size(made.bytes)} ({format_size(made.unpacked)} unpacked)"
    )
    console.progress.note(
        f"Copy it to a cluster: ssh CLUSTER mkdir -p bin && scp {shlex.quote(shown)} CLUSTER:bin/kedge"
    )
    return 0


def _shorten(path: str) -> str:
    """Return a path as one would type it in the current directory."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
