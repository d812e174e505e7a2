# SPDX-License-Identifier: BSD-3-Clause
"""`kedge wait JOB ...`: wait until jobs are over; the status says whether they went well."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.cli.status import JOB_HELP, describe_state
from kedge.errors import JobFailed, JobStuck, KedgeError, UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.model.job_state import JobStatus
    from kedge.ops.jobs.find_job import FoundJob


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and how long."""
    parser.add_argument("jobs", nargs="*", default=["last"], metavar="JOB", help=f"{JOB_HELP} (the default)")
    parser.add_argument("--timeout", metavar="TIME", help="give up after this time, such as 30m; the jobs go on")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Wait for all; the first that did not end well, or never begins, is the error, after all were waited for."""
    from kedge.model.duration import parse_duration
    from kedge.ops.jobs.find_job import locate_jobs
    from kedge.ops.jobs.wait import require_success, wait_for_all

    timeout = float(parse_duration(arguments.timeout)) if arguments.timeout else None
    if timeout is not None and timeout <= 0:
        raise UsageError("--timeout takes a time above zero")
    cluster, jobs = locate_jobs(console.settings, console.environ, arguments.jobs)
    told: list[dict[str, object]] = []
    problems: list[KedgeError] = []
    for outcome in wait_for_all(cluster, jobs, timeout=timeout, notice=_Notice(console)):
        told.append({"id": outcome.job.id, "tasks": [each.as_dict() for each in outcome.statuses]})
        try:
            if outcome.problem is not None:
                raise outcome.problem
            require_success(outcome.job, outcome.statuses, cluster.backend.explain)
        except (JobFailed, JobStuck) as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
    if console.json:
        console.print_json(told)
    return 0


class _Notice:
    """Says when a job's state changes, once each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, str] = {}

    def __call__(self, job: FoundJob, statuses: Sequence[JobStatus]) -> None:
        counts: dict[str, int] = {}
        for each in statuses:
            counts[each.state.value] = counts.get(each.state.value, 0) + 1
        text = describe_state(statuses[0]) if len(statuses) == 1 else _join(counts)
        key = " ".join(counts)
        if key != self._last.get(job.name, ""):
            self._console.progress.note(f"{job.name}: {text}")
        self._last[job.name] = key


def _join(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())
