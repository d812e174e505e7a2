# SPDX-License-Identifier: BSD-3-Clause
"""`kedge alloc`: an interactive job: a shell in the container, on a compute node."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.job_options import add_job_options, read_job_options
from kedge.cli.options import add_dry_run, add_settings

if TYPE_CHECKING:
    from kedge.cli.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of jobs; without a command the job is a shell."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[IMAGE [COMMAND [ARGUMENT ...]]]",
        help="command to run on the node (default: a shell in IMAGE; without IMAGE, a shell on the node itself)",
    )
    add_job_options(parser)
    add_settings(parser, "site", "pull_directory")
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Request the allocation and hand over the terminal."""
    from kedge.cluster.job import Job
    from kedge.jobs.alloc import plan_allocation, run_allocation
    from kedge.jobs.cluster import open_cluster

    words = arguments.words[1:] if arguments.words[:1] == ["--"] else list(arguments.words)
    image = "" if words[:1] in ([], ["-"]) else words[0]
    base = Job(image=image, command=tuple(words[1:]), name="kedge-alloc")
    job = read_job_options(arguments, base, needs_command=False)
    cluster = open_cluster(console.settings, console.environ)
    has_terminal = console.dry_run or os.isatty(0)
    folder = str(Path.cwd())
    plan = plan_allocation(job, cluster, console.settings, console.environ, folder, has_terminal=has_terminal)
    for warning in plan.warnings:
        console.progress.warn(warning)
    for note in plan.notes:
        console.progress.note(note)
    if console.dry_run:
        if console.json:
            console.print_json({"argv": list(plan.argv), "then": shlex.join(plan.typed) if plan.typed else None})
        console.print(shlex.join(plan.argv))
    if plan.typed:
        console.progress.note(f"Type this on the compute node: {shlex.join(plan.typed)}")
    if not console.dry_run:
        console.close()  # flush before another program takes over this process
        run_allocation(plan, cluster)
    return 0
