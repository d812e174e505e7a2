# SPDX-License-Identifier: BSD-3-Clause
"""`kedge version`: which kedge, Python, system and libraries run here."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from kedge.base.release import VERSION

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""
    del parser


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print one line per part."""
    del arguments
    facts = _collect_versions()
    if console.json:
        console.print_json(facts)
    for name, value in facts.items():
        console.print(f"{name:<13} {value}")
    return 0


def _collect_versions() -> dict[str, str]:
    """kedge, the interpreter, the system, and each library that kedge asks for."""
    facts = {
        "kedge": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for name in ("urllib3", "zstandard", "zlib-ng", "lz4", "rich", "cryptography", "shtab"):
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = "not installed"
    return facts
