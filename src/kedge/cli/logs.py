# SPDX-License-Identifier: BSD-3-Clause
"""`kedge logs [-f] JOB`: shows the output of a job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.cli.status import JOB_HELP
from kedge.errors import JobNotFound, SchedulerFailed, UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.jobs.cluster import Cluster
    from kedge.jobs.find_job import FoundJob
    from kedge.jobs.logs import LogFile
    from kedge.jobs.records import Record


def configure(parser: argparse.ArgumentParser) -> None:
    """Which job, and how much of its output."""
    parser.add_argument("job", nargs="?", default="last", metavar="JOB", help=f"{JOB_HELP} (default: last)")
    parser.add_argument(
        "--follow", "-f", action="store_true", help="wait for output, show it as it grows, stop when the job ends"
    )
    parser.add_argument("--lines", "-n", type=int, metavar="N", help="show only the last N lines")
    parser.add_argument("--error", "-e", action="store_true", help="show standard error, if it goes to a separate file")
    parser.add_argument("--path", action="store_true", help="print only the paths of the output files")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the output of a job; of an array, task after task."""
    from kedge.jobs.find_job import locate_job
    from kedge.jobs.logs import read_log, require_logs

    if arguments.lines is not None and arguments.lines < 0:
        raise UsageError(f"--lines {arguments.lines} is not valid: give 0 or more")
    cluster, job = locate_job(console.settings, console.environ, arguments.job)
    if job.record is None:
        sites = cluster.records.find_sites(job.id)
        if sites:
            raise JobNotFound(
                f"job {job.id} was submitted to {', '.join(sites)}, not to {cluster.site.name}",
                hint=f"kedge logs --site {sites[0]} {job.id}",
            )
        raise JobNotFound(
            f"job {job.id} was not submitted with kedge, so kedge cannot locate its output",
            hint=f"ask the scheduler about the job: kedge status {job.id}",
        )
    if arguments.follow and not console.json:
        return _follow(cluster, job, job.record, arguments, console)
    logs = require_logs(job.record, job.index, errors=arguments.error)
    if console.json:
        console.print_json([{"path": str(log.path), "index": log.index} for log in logs])
        return 0
    for log in logs:
        if arguments.path:
            console.print(str(log.path))
            continue
        if len(logs) > 1:
            console.print(f"==> {log.path} <==")
        for piece in read_log(log, arguments.lines):
            console.write_bytes(piece)
    return 0


def _follow(cluster: Cluster, job: FoundJob, record: Record, arguments: argparse.Namespace, console: Console) -> int:
    from kedge.jobs.logs import find_logs, follow_logs
    from kedge.jobs.status import read_status
    from kedge.jobs.wait import explain_stuck, has_ended, require_success

    def find() -> list[LogFile]:
        return find_logs(record, job.index, errors=arguments.error)

    def is_over() -> bool:
        try:
            statuses = read_status(cluster, job)
        except SchedulerFailed:  # the scheduler may be restarting; the output can be read without it
            return False
        problem = explain_stuck(cluster, job, statuses)
        if problem is not None:
            raise problem
        return all(status.state.is_over for status in statuses)

    shown = None
    for log, piece in follow_logs(find, is_over, lambda: has_ended(job), arguments.lines):
        if shown not in (None, log.path):
            console.print(f"==> {log.path} <==")
        shown = log.path
        console.write_bytes(piece)
    require_success(job, read_status(cluster, job), cluster.backend.explain)
    return 0
