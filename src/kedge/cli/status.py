# SPDX-License-Identifier: BSD-3-Clause
"""`kedge status JOB`: how a job is, and in words why it waits or why it failed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.options import add_settings
from kedge.model.job_state import JobStatus, State

if TYPE_CHECKING:
    from kedge.cli.console import Console
    from kedge.ops.jobs.cluster import Cluster
    from kedge.ops.jobs.find_job import FoundJob

JOB_HELP = "an id, ID_INDEX of an array's task, a job's name, or 'last'"
_SHOWN_TASKS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Which jobs."""
    parser.add_argument("jobs", nargs="*", metavar="JOB", default=["last"], help=f"{JOB_HELP} (the default)")
    add_settings(parser, "site", "job_directory")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show each job."""
    from kedge.ops.jobs.find_job import locate_job
    from kedge.ops.jobs.status import read_status

    told = []
    for word in arguments.jobs:
        cluster, job = locate_job(console.settings, console.environ, word)
        statuses = read_status(cluster, job)
        if console.json:
            told.append(_as_dict(job, statuses, cluster))
        else:
            _show(job, statuses, cluster, console)
    if console.json:
        console.print_json(told[0] if len(told) == 1 else told)
    return 0


def _as_dict(job: FoundJob, statuses: Sequence[JobStatus], cluster: Cluster) -> dict[str, object]:
    from kedge.ops.jobs.submit import show_output

    record = job.record
    # Logs are read for these alone: an array may have thousands of tasks that failed for one reason.
    explained = [each for each in statuses if each.state is State.FAILED][:_SHOWN_TASKS]
    return {
        "id": job.id,
        "name": record.name if record else statuses[0].name,
        "site": cluster.site.name,
        "scheduler": cluster.backend.name,
        "script": str(record.script) if record else None,
        "output": show_output(record) if record else None,
        "tasks": [
            {
                **each.as_dict(),
                **_explain(job, each, cluster),
                **(_describe_clue(job, each) if each in explained else {}),
            }
            for each in statuses
        ],
    }


def _describe_clue(job: FoundJob, status: JobStatus) -> dict[str, object]:
    from kedge.ops.jobs.failure_clues import find_failure_clue

    clue = find_failure_clue(job.record, status)
    return {"clue": clue.as_dict()} if clue is not None else {}


def _show(job: FoundJob, statuses: Sequence[JobStatus], cluster: Cluster, console: Console) -> None:
    from kedge.cli.redaction import escape_line

    console.print(f"{escape_line(job.name)} on {cluster.site.name}")
    for each in statuses[:_SHOWN_TASKS]:
        title = f"  task {each.shown_id.partition('_')[2]}: " if len(statuses) > 1 or each.index is not None else "  "
        told = _explain(job, each, cluster)
        console.print(f"{title}{describe_state(each)}{', and never begins by itself' if told['stuck'] else ''}")
        if told["why"]:
            console.print(f"    {told['why']}")
        _show_clue(job, each, console)
    if len(statuses) > _SHOWN_TASKS:
        rest = statuses[_SHOWN_TASKS:]
        counts = {state: sum(each.state is state for each in rest) for state in State}
        console.print("  and more: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count))
    if job.record is not None:
        console.print(f"  script: {job.record.script}")
        _show_logs(job, console)


def _explain(job: FoundJob, status: JobStatus, cluster: Cluster) -> dict[str, object]:
    """Why it waits or failed, and whether it waits in vain."""
    from kedge.ops.jobs.wait import find_obstacle

    obstacle = find_obstacle(cluster, job.record, status)
    return {"why": obstacle or cluster.backend.explain(status) or status.reason, "stuck": bool(obstacle)}


def _show_clue(job: FoundJob, status: JobStatus, console: Console) -> None:
    """What a failed task's own output says of the cause."""
    from kedge.cli.redaction import escape_controls
    from kedge.ops.jobs.failure_clues import find_failure_clue

    clue = find_failure_clue(job.record, status)
    if clue is not None:
        console.print(f"    its output says: {escape_controls(clue.line)}")
        console.print(f"    which means: {escape_controls(clue.cause)}")
        console.print(f"    -> {clue.remedy}")


def _show_logs(job: FoundJob, console: Console) -> None:
    from kedge.ops.jobs.logs import find_logs

    logs = find_logs(job.record, job.index) if job.record else []
    if logs:
        console.print(f"  output: {logs[0].path}" + (f" and {len(logs) - 1} more" if len(logs) > 1 else ""))


def describe_state(status: JobStatus) -> str:
    """`running on n1 since 12:30 (5 min)`, `failed with exit code 3 after 0:10:00`."""
    from kedge.model.duration import format_duration
    from kedge.ops.jobs.status import BEING_CANCELLED

    text = "being cancelled" if status.reason == BEING_CANCELLED else status.state.value
    if status.state is State.UNKNOWN:
        text += f": the scheduler says '{status.raw}'"
    if status.state is State.FAILED and status.signal:
        text += f" by signal {status.signal}"
    elif status.state is State.FAILED and status.exit_code is not None:
        text += f" with exit code {status.exit_code}"
    if status.nodes:
        text += f" on {status.nodes}"
    if status.started and status.ended:
        text += f", after {format_duration(max(round(status.ended - status.started), 0))}"
    elif status.started:
        text += f", for {format_duration(max(round(time.time() - status.started), 0))}"
        text += f" of {format_duration(status.time_limit)}" if status.time_limit else ""
    return text + _describe_attempts(status)


def _describe_attempts(status: JobStatus) -> str:
    """For a job that the scheduler put back into the queue."""
    if status.attempts and status.state in (State.QUEUED, State.HELD):
        return f" again after {status.attempts} attempt{'' if status.attempts == 1 else 's'}"
    return f" (attempt {status.attempts})" if status.attempts > 1 else ""
