# SPDX-License-Identifier: BSD-3-Clause
"""`kedge cancel JOB ...`: cancels jobs, or sends them a signal."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.options import add_dry_run, add_settings
from kedge.cli.status import JOB_HELP
from kedge.errors import UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.find_job import FoundJob


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs."""
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=JOB_HELP)
    parser.add_argument("--all", action="store_true", help="cancel all jobs submitted with kedge that have not ended")
    parser.add_argument("--signal", metavar="NAME", default="", help="only send this signal, such as USR1")
    add_settings(parser, "site", "job_directory")
    add_dry_run(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Cancel the jobs and say which."""
    from kedge.cli.redaction import escape_line
    from kedge.jobs.cancel import cancel_jobs
    from kedge.jobs.cluster import open_cluster
    from kedge.jobs.find_job import locate_jobs

    if bool(arguments.jobs) == arguments.all:
        raise UsageError("name the jobs to cancel, or give --all", hint="kedge cancel JOB ..., or kedge cancel --all")
    if arguments.all:
        cluster = open_cluster(console.settings, console.environ)
        jobs = _find_all(cluster)
    else:
        cluster, jobs = locate_jobs(console.settings, console.environ, arguments.jobs)
    if jobs and not console.dry_run:
        cancel_jobs(cluster, jobs, arguments.signal)
    if console.json:
        console.print_json({"cancelled": [job.id for job in jobs], "dry_run": console.dry_run})
    for job in jobs:
        name = escape_line(job.name)
        if job.record and job.record.read_final():
            console.print(f"Job {name} had already ended")
        elif arguments.signal:
            console.print(f"{'Would send' if console.dry_run else 'Sent'} {arguments.signal} to job {name}")
        else:
            console.print(f"{'Would cancel' if console.dry_run else 'Cancelled'} job {name}")
    if not jobs:
        console.print("No jobs to cancel")
    return 0


def _find_all(cluster: Cluster) -> list[FoundJob]:
    from kedge.jobs.find_job import FoundJob
    from kedge.jobs.status import survey

    views = [view for view in survey(cluster) if view.key and not view.status.state.is_over]
    found = {view.status.id: cluster.records.read(view.key, view.status.id) for view in views}
    return [FoundJob(id, record) for id, record in found.items()]
