# SPDX-License-Identifier: BSD-3-Clause
"""`kedge wait JOB ...`: wait until jobs are over; the status says whether they went well."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.cli.status import JOB_HELP, describe_state
from kedge.errors import JobFailed, UsageError

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.model.job_state import JobStatus


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and how long."""
    parser.add_argument("jobs", nargs="*", default=["last"], metavar="JOB", help=f"{JOB_HELP} (the default)")
    parser.add_argument("--timeout", metavar="TIME", help="give up after this time, such as 30m; the jobs go on")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Wait for each; the first that did not end well is the error, after all were waited for."""
    from kedge.model.duration import parse_duration
    from kedge.ops.job_control import require_success, wait_for
    from kedge.ops.job_places import locate_jobs

    timeout = float(parse_duration(arguments.timeout)) if arguments.timeout else None
    if timeout is not None and timeout <= 0:
        raise UsageError("--timeout takes a time above zero")
    cluster, jobs = locate_jobs(console.settings, console.environ, arguments.jobs)
    told, problems = [], []
    end = time.monotonic() + timeout if timeout is not None else None  # for all of them together
    for job in jobs:
        left = max(end - time.monotonic(), 0.0) if end is not None else None
        statuses = wait_for(cluster, job, timeout=left, notice=_Notice(job.name, console))
        told.append({"id": job.id, "tasks": [each.as_dict() for each in statuses]})
        try:
            require_success(job, statuses, cluster.backend.explain)
        except JobFailed as problem:
            problems.append(problem)
    if problems:
        raise problems[0]
    if console.json:
        console.print_json(told)
    return 0


class _Notice:
    """Says when a job's state changes, once each."""

    def __init__(self, name: str, console: Console) -> None:
        self._name = name
        self._console = console
        self._last = ""

    def __call__(self, statuses: Sequence[JobStatus]) -> None:
        counts: dict[str, int] = {}
        for each in statuses:
            counts[each.state.value] = counts.get(each.state.value, 0) + 1
        text = describe_state(statuses[0]) if len(statuses) == 1 else _join(counts)
        key = " ".join(counts)
        if key != self._last:
            self._console.progress.note(f"{self._name}: {text}")
        self._last = key


def _join(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())
