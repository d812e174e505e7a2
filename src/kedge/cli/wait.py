# SPDX-License-Identifier: BSD-3-Clause
"""`kedge wait JOB ...`: waits until jobs have ended; the exit code is 0 if all completed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.cli.status import JOB_HELP, count_states, describe_state
from kedge.errors import JobFailed, JobStuck, KedgeError, UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.cluster.job_state import JobStatus, State
    from kedge.jobs.find_job import FoundJob


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and how long."""
    parser.add_argument("jobs", nargs="*", default=["last"], metavar="JOB", help=f"{JOB_HELP} (default: last)")
    parser.add_argument("--timeout", metavar="TIME", help="stop waiting after this time, such as 30m; the jobs go on")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Wait for all jobs, then raise the error of the first that did not complete or will never start."""
    from kedge.base.duration import parse_duration
    from kedge.jobs.find_job import locate_jobs
    from kedge.jobs.wait import require_success, wait_for_all

    timeout = float(parse_duration(arguments.timeout)) if arguments.timeout else None
    if timeout is not None and timeout <= 0:
        raise UsageError(
            f"--timeout {arguments.timeout} is not valid: give a time above zero", hint="such as --timeout 30m"
        )
    cluster, jobs = locate_jobs(console.settings, console.environ, arguments.jobs)
    ended: list[dict[str, object]] = []
    problems: list[KedgeError] = []
    for outcome in wait_for_all(cluster, jobs, timeout=timeout, notice=_Notice(console)):
        ended.append({"id": outcome.job.id, "tasks": [status.as_dict() for status in outcome.statuses]})
        try:
            if outcome.problem is not None:
                raise outcome.problem
            require_success(outcome.job, outcome.statuses, cluster.backend.explain)
        except (JobFailed, JobStuck) as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
    if console.json:
        console.print_json(ended)
    return 0


class _Notice:
    """Prints a line when the state of a job changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, set[State]] = {}

    def __call__(self, job: FoundJob, statuses: Sequence[JobStatus]) -> None:
        states = {status.state for status in statuses}
        if states != self._last.get(job.name):
            text = describe_state(statuses[0]) if len(statuses) == 1 else count_states(statuses)
            self._console.progress.note(f"Job {job.name}: {text}")
        self._last[job.name] = states
