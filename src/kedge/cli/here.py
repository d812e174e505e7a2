# SPDX-License-Identifier: BSD-3-Clause
"""`kedge` alone: where you are, and the commands that are likely next."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.answers.here import Here, find_here
from kedge.base.release import VERSION
from kedge.base.size import format_size

if TYPE_CHECKING:
    from kedge.cli.console import Console


def show_here(console: Console) -> int:
    """Print what this host can do for kedge; with --json all of it."""
    here = find_here(console.settings, console.environ, Path(os.curdir))
    if console.json:
        console.print_json(here.as_dict())
        return 0
    console.print(f"kedge {VERSION} on {here.host}")
    for name, text in (
        ("GPUs", _tell_gpus(here)),
        ("Scheduler", _tell_scheduler(here)),
        ("Cache", here.cache + (f", {format_size(here.cache_free)} free" if here.cache_free is not None else "")),
    ):
        console.print(f"  {name:<10} {text}")
    console.print("")
    width = max(len(step.command) for step in here.next)
    for step in here.next:
        console.print(f"  {step.command:<{width}}  # {step.does}")
    console.print("")
    console.print("All verbs: kedge --help. Guides: kedge help. Problems: kedge doctor")
    return 0


def _tell_gpus(here: Here) -> str:
    if not here.gpus:
        return "none on this host" + (f"; {_tell_where(here)}" if here.scheduler else "")
    names = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(here.gpus).items())
    return names + (f", driver {here.driver}" if here.driver else "")


def _tell_where(here: Here) -> str:
    """How to learn of the cluster's GPUs; a profile that fits any cluster names no partitions."""
    if here.site.startswith("generic-"):
        return "list the cluster's: kedge site init --dry-run"
    return f"list the cluster's: kedge site show {shlex.quote(here.site)}"


def _tell_scheduler(here: Here) -> str:
    if not here.scheduler:
        return "none; jobs run on the local queue of this host"
    job = f", in job {here.job} on {here.nodes} node{'s' if here.nodes > 1 else ''}" if here.job else ""
    return f"{here.scheduler}, site {here.site}{job}: {here.reason}"
